"""Batch counts in experiment files: their bench-schedule calls, and errors for invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dynbatch.harness.commands.schedule import main
from dynbatch.harness.contracts.policy import list_policy_names
from dynbatch.harness.errors import RecordError
from dynbatch.harness.planning.artifacts import build_choices, hash_sweep, plan_counts
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.grid import expand
from dynbatch.harness.planning.sweep import Sweep, parse_sweep
from dynbatch.harness.records.count_row import CountRow, read_count_rows
from dynbatch.harness.values.paths import CONF_DIR
from tests.support.refusals import expect_refusal

GOOD: dict[str, Any] = {
    "model": ["tree_lstm", "lattice_lstm"],
    "dataset": ["sst", "weibo_lattice"],
    "batch_size": 2,
    "policy": ["agenda", "depth"],
}


def experiment(folder: Path, *counts: object) -> Path:
    """Write experiment/one.yaml, which has only batch counts."""
    content = {"title": "T", "paper": "P", "scales": {"smoke": {"counts": list(counts)}}}
    (folder / "experiment").mkdir()
    (folder / "experiment/one.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return folder


def test_a_sweep_is_a_call_of_bench_schedule(tmp_path: Path) -> None:
    grid = expand("one", "smoke", experiment(tmp_path, GOOD))
    assert grid.settings == ()
    (sweep,) = grid.sweeps
    assert sweep.overrides == (
        "model=tree_lstm,lattice_lstm",
        "dataset=sst,weibo_lattice",
        "batch_size=2",
        "policy=agenda,depth",
    )


def test_all_policies_are_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new policy is counted without any other change."""
    wanted = ["depth", "all", "not:beam_2"]
    before = parse_sweep("here", GOOD | {"policy": wanted}).get_values("policy")
    assert before[0] == "depth"
    assert sorted(before) == sorted(set(list_policy_names()) - {"beam_2"})
    names = (*list_policy_names(), "somebodys_own")
    for module in ("planning.sweep", "contracts.policy"):
        monkeypatch.setattr(f"dynbatch.harness.{module}.list_policy_names", lambda: names)
    after = parse_sweep("here", GOOD | {"policy": wanted}).get_values("policy")
    assert after == (*before, "somebodys_own")


def test_equal_sweeps_share_a_file_and_others_do_not() -> None:
    sweep = parse_sweep("here", GOOD)
    swapped = parse_sweep("there", dict(reversed(GOOD.items())))
    assert sweep.sweep_id == swapped.sweep_id
    assert parse_sweep("here", {**GOOD, "batch_size": 3}).sweep_id != sweep.sweep_id
    path = sweep.build_path(Path("results"))
    assert path.parent == Path("results/counts"), "made of records, which are below raw/"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("model=tree_lstm", "expected a mapping, got 'model=tree_lstm'"),
        ({"model": "tree_lstm"}, "no dataset"),
        ({**GOOD, "policy": []}, "no policy"),
        ({**GOOD, "policy": ["all", "not:agender"]}, "policy=agender is unknown"),
        ({**GOOD, "policy": "agender"}, "policy=agender is unknown, did you mean agenda"),
        ({**GOOD, "offset": [0, 8]}, "2 values of offset"),
        ({**GOOD, "out": "here.json"}, "out, which the pipeline sets"),
        ({**GOOD, "records": "here"}, "records, which the pipeline sets"),
        ({**GOOD, "model": {"a": 1}}, "expected text or a number, got {'a': 1}"),
        ({**GOOD, "offset": True}, "expected text or a number, got True"),
    ],
)
def test_invalid_counts_give_one_line(content: object, words: str, tmp_path: Path) -> None:
    with expect_refusal("experiment/one.yaml, scale smoke", words):
        expand("one", "smoke", experiment(tmp_path, content))


def test_stand_ins_are_counted_where_a_corpus_is_not_here(tmp_path: Path) -> None:
    conf_dir = experiment(tmp_path, GOOD)
    (conf_dir / "dataset").symlink_to(CONF_DIR / "dataset")
    choices = build_choices({"scale": "smoke", "data_root": "none", "conf_dir": conf_dir}, {})
    (sweep,) = plan_counts("one", choices)
    assert sweep.get_values("dataset") == ("sst_synthetic", "lattice_synthetic")


def test_the_code_that_counts_is_hashed() -> None:
    composer = Composer()
    one, same, other = (
        hash_sweep(Sweep({**parse_sweep("here", GOOD).settings, "policy": (policy,)}), composer)
        for policy in ("agenda", "agenda", "fsm_sort")
    )
    assert one == same != other


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    synthetic = {"dataset": ["sst_synthetic", "lattice_synthetic"]}
    sweep = parse_sweep("here", GOOD | synthetic | {"hidden_size": 4, "timing.min_seconds": 0})
    assert main([*sweep.overrides, f"out={file}"]) == 0
    rows = [row for row in read_count_rows(file) if isinstance(row, CountRow)]
    pairs = [(model, policy) for model in GOOD["model"] for policy in GOOD["policy"]]
    assert [(row.model, row.policy) for row in rows] == pairs
    assert [row.n_unbatchable_ed for row in rows] == [1, 1, 3, 3]
    assert all(row.n_batches >= row.lower_bound for row in rows)
    assert all(row.cpu for row in rows)


@pytest.mark.parametrize("text", ["", "{}", '[{"model": "tree_lstm"}]'])
def test_invalid_count_file_is_named_in_the_error(text: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text(text)
    with pytest.raises(RecordError, match=r"rows\.json"):
        read_count_rows(file)
    with pytest.raises(RecordError, match="cannot be read"):
        read_count_rows(tmp_path / "none.json")
