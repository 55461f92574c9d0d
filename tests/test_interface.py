"""Python interface: import on first use, sweeps as in `bench`, and selection of rows."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hydra import compose, initialize_config_dir

import dynbatch
from dynbatch.harness.api import build_overrides
from dynbatch.harness.errors import ConfigError, RecordError
from dynbatch.harness.records.tidy import build_frame
from dynbatch.harness.terminal import measurement
from tests.support.processes import run_python
from tests.support.records import plain_record

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.usefixtures("shared_servers")
TINY: dict[str, Any] = {
    "model": "tree_fc",
    "dataset": "complete_trees",
    "dataset.options.n_leaves": 4,
    "hidden_size": 8,
    "timing": {"min_seconds": 0, "n_mini_batches": 1},
}


def test_importing_the_package_loads_nothing() -> None:
    program = (
        "import sys, dynbatch; print(sorted(set(dir(dynbatch)) & {'frame', 'measure', 'numbers'}),"
        " [name for name in ('pandas', 'numpy', 'hydra', 'dynbatch.plots') if name in sys.modules])"
    )
    assert run_python("-c", program) == "['frame', 'measure', 'numbers'] []\n"


def test_every_name_is_there_and_no_other() -> None:
    for name in dynbatch._HOMES:
        assert callable(getattr(dynbatch, name))
    with pytest.raises(AttributeError, match="no attribute 'frames'"):
        _ = dynbatch.frames


@pytest.mark.slow
def test_an_interrupted_sweep_keeps_its_records_and_measures_the_others_once(
    tmp_path: Path, monkeypatch: Patch, capfd: pytest.CaptureFixture[str]
) -> None:
    blocks = iter([measurement.measure_block])

    def measure_a_block(*given: Any, **named: Any) -> Any:
        for work in blocks:
            return work(*given, **named)
        raise KeyboardInterrupt

    def measure(**keys: Any) -> pd.DataFrame:
        return dynbatch.measure(TINY, results_dir=tmp_path, rounds=2, **keys)

    sweep = {"system": ["reference", "null"], "batch_size": [1, 2]}
    with monkeypatch.context() as patch:
        patch.setattr(measurement, "measure_block", measure_a_block)
        with pytest.raises(KeyboardInterrupt):
            measure(**sweep)
    kept = dynbatch.frame(tmp_path)
    assert len(kept) == 2
    rows = measure(**sweep)
    expected = set(itertools.product(("reference", "null"), (1, 2), (0, 1)))
    assert set(zip(rows.system, rows.batch_size, rows["round"], strict=True)) == expected
    assert set(kept.throughput) <= set(rows.throughput)
    assert "[8/8]" in capfd.readouterr().err
    monkeypatch.setattr(measurement, "measure_block", None)
    part = measure(system="null", batch_size=np.int64(2), quiet=True)
    assert capfd.readouterr() == ("", "")
    same = dynbatch.select(rows, system="null", batch_size=2)
    assert list(part.throughput) == list(same.throughput)


def test_programs_of_others_measure_too(tmp_path: Path) -> None:
    """Measuring works in a thread, and within a Hydra application without changing its state."""
    found: list[pd.DataFrame] = []

    def measure() -> None:
        chosen = {"system": "null", "batch_size": 2, "results_dir": tmp_path}
        found.append(dynbatch.measure(TINY, quiet=True, **chosen))

    thread = threading.Thread(target=measure)
    thread.start()
    thread.join()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "theirs.yaml").write_text("batch_size: 99\n")
    with initialize_config_dir(str(tmp_path / "conf"), version_base=None):
        measure()
        assert compose("theirs").batch_size == 99
    assert [rows.status.tolist() for rows in found] == [["ok"], ["ok"]]
    assert list(found[0].throughput) == list(found[1].throughput)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"batch_sise": 3}, r"batch_sise .*did you mean batch_size\?"),
        ({"system": "vertx"}, r"system=vertx .*did you mean vertex\?"),
        ({"batch_size": []}, r"batch_size=\[\] has no values"),
        ({"batch_size": "8"}, "batch_size='8' is not allowed"),
        ({"hidden_size": object()}, "hidden_size=.*expected a number"),
        ({"rounds": 0}, "rounds"),
        ({"cpu": 0}, "cpu would restrict the whole program"),
        ({"dataset": "sst", "data_root": "/nowhere"}, "bench-data fetch sst"),
    ],
)
def test_wrong_settings_are_one_line(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        dynbatch.measure(quiet=True, results_dir=tmp_path, **keys)
    error = caught.value
    assert "\n" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None, "an error of Hydra"


def test_settings_are_written_as_on_a_command_line() -> None:
    settings = {
        "system": ["vertex", "null"],
        "policy": None,
        "system.options.fusion": True,
        "timing": {"min_seconds": 0.5, "n_mini_batches": np.int64(2)},
        "batch_size": range(1, 3),
        "results_dir": Path("some where/it's"),
    }
    assert build_overrides(settings) == [
        "-m",
        "system=vertex,null",
        "policy=null",
        "system.options.fusion=true",
        "timing.min_seconds=0.5",
        "timing.n_mini_batches=2",
        "batch_size=1,2",
        "results_dir='some where/it\\'s'",
    ]
    assert build_overrides({"batch_size": [4]}) == ["batch_size=4"]


@pytest.fixture
def rows() -> pd.DataFrame:
    """Return rows of two systems, one with two policies, at two sizes of trees."""
    trials = [("vertex", None), ("vertex", "depth"), ("dynet", None)]
    return build_frame(
        plain_record(
            round_,
            {"instances_per_s": 100.0 * n * (k + 1)},
            system=system,
            policy=policy,
            dataset_options={"n_leaves": n},
        )
        for k, (system, policy) in enumerate(trials)
        for n in (4, 8)
        for round_ in (0, 1)
    )


def test_rows_are_selected_by_value_list_gap_and_kind(rows: pd.DataFrame) -> None:
    assert len(dynbatch.select(rows, system="vertex", policy=None)) == 4
    assert len(dynbatch.select(rows, policy=[None, "depth"], dataset__options__n_leaves=4)) == 6
    assert set(dynbatch.select(rows, system_kind="framework").system) == {"dynet"}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"systm": "vertex"}, r"unknown column 'systm', did you mean system\?"),
        ({"system": "vertx"}, r"no row has system='vertx', did you mean vertex\?"),
        ({"system_kind": "upper_bound"}, "no row has system_kind='upper_bound'"),
        ({"mode": None}, "no row has mode=None; choose from train"),
    ],
)
def test_a_selection_of_nothing_is_one_line(
    rows: pd.DataFrame, wanted: dict[str, Any], message: str
) -> None:
    with pytest.raises((ConfigError, RecordError), match=message):
        dynbatch.select(rows, **wanted)


def test_default_keys_are_the_varying_columns(rows: pd.DataFrame) -> None:
    values = dynbatch.numbers(rows)
    keys = ["system", "dataset.options.n_leaves", "policy"]
    assert list(values)[:3] == keys
    assert len(values) == 6
    fastest = dynbatch.select_fastest(dynbatch.select(rows, system="vertex"))
    assert set(fastest.policy) == {"depth"}
    baseline = dynbatch.select(rows, system="dynet")
    speedups = dynbatch.numbers(dynbatch.ratios(baseline, base=fastest), quantity="ratio")
    assert list(speedups.value) == pytest.approx([2 / 3, 2 / 3])
