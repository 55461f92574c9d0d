"""Verification of committed results on another machine, on points that are chosen and judged."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pandas as pd
import pytest

from scripts import verify_reference
from scripts.verify_reference import (
    DIFFERS,
    HOLDS,
    N_POINTS,
    ORDER_HOLDS,
    Point,
    build_arguments,
    list_points,
)
from tests.support.records import plain_record, write_results
from tests.support.refusals import raising

SETTINGS = {
    "model": "tree_lstm",
    "dataset": "sst",
    "mode": "infer",
    "hidden_size": 8,
    "batch_size": 2,
    "timing.n_mini_batches": 2,
    "system": "vertex",
}


def make_point(low: float, high: float) -> Point:
    return Point(
        "Trees, inference", "torch_levels", SETTINGS, "infer", (low * high) ** 0.5, low, high
    )


@pytest.mark.parametrize(
    ("low", "high", "here", "result"),
    [
        (1.3, 1.5, 1.4, HOLDS),
        (1.3, 1.5, 1.15, HOLDS),  # within a factor of 1.17
        (1.3, 1.5, 1.05, ORDER_HOLDS),
        (1.3, 1.5, 9.0, ORDER_HOLDS),
        (1.3, 1.5, 0.95, DIFFERS),
        (0.5, 0.6, 0.8, ORDER_HOLDS),
        (0.5, 0.6, 1.2, DIFFERS),
        (0.9, 1.1, 1.25, HOLDS),
        (0.9, 1.1, 1.5, DIFFERS),  # no order was clear
    ],
)
def test_a_speedup_confirms_order_or_number(
    low: float, high: float, here: float, result: str
) -> None:
    assert make_point(low, high).judge(here) == result


def test_ten_points_of_all_experiments_with_an_installed_baseline() -> None:
    points = list_points()
    assert len({point.folder for point in points}) == len(points) == N_POINTS
    assert not any(point.baseline.startswith(("dynet", "native")) for point in points)
    for point in points:
        arguments = build_arguments(point, Path("results"), {})
        keys = [argument.partition("=")[0] for argument in arguments]
        assert len({*keys}) == len(keys), "every key once"
        assert {"model", "dataset", "hidden_size", "batch_size"} <= {*keys}, "from the plan"
        swept = [argument for argument in arguments if "," in argument]
        assert swept == [f"system=vertex,{point.baseline}"], "no sweep but that of systems"
        assert point.low <= point.speedup <= point.high


def test_missing_data_are_replaced_and_both_systems_share_a_block(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    environ = {"BENCH_DATA": str(tmp_path / "data")}
    arguments = build_arguments(make_point(1, 2), tmp_path / "results", environ)
    assert arguments[:2] == ["-m", "device=cpu"]
    assert "dataset=sst_synthetic" in arguments
    systems = [argument for argument in arguments if argument.startswith("system=")]
    assert systems == ["system=vertex,torch_levels"]
    folders = [argument for argument in arguments if argument.startswith("results_dir=")]
    assert folders == [f"results_dir={tmp_path / 'results'}"]


def test_a_small_point_is_measured_and_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    monkeypatch.setattr(verify_reference, "MIN_SECONDS", 0.05)
    unknown = Point("Trees, unsupported", "torch_rnn", SETTINGS, "infer", 2.0, 1.9, 2.1)
    monkeypatch.setattr(verify_reference, "list_points", lambda: [make_point(0.01, 99), unknown])
    assert verify_reference.main([str(tmp_path / "results")]) == 0
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines()]
    table = pd.DataFrame(rows[2:], columns=rows[0]).map(str.strip)
    assert [row.split()[-1] for row in table.iloc[:, -2]] == [HOLDS, "unsupported"]


def test_records_of_an_older_run_do_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The older run had other code, another engine's trial and another baseline."""
    versions = {name: {"python": "3.11", "numpy": "2", "harness": name} for name in ("old", "new")}
    made = [
        ("vertex", "old", {"system_options": {"reuse": False}}),
        ("torch_rnn", "old", {}),
        ("vertex", "new", {}),
        ("torch_levels", "new", {}),
    ]
    records = [
        plain_record(
            system=system,
            **{"batch_size": 2, "dataset": "sst_synthetic", "hidden_size": 8} | spec,
            changes={"versions": versions[run], "started_at": f"2026-11-{day}T00:00:00+00:00"},
        )
        for day, (system, run, spec) in enumerate(made, start=11)
    ]
    write_results(tmp_path, records, [])
    done = subprocess.CompletedProcess([], 0)
    monkeypatch.setattr(verify_reference.subprocess, "run", lambda *_, **_options: done)
    monkeypatch.setenv("BENCH_DATA", str(tmp_path / "no_data"))
    found = verify_reference.measure(make_point(1, 2), tmp_path)
    assert list(found.value) == [1]


def test_an_interrupt_is_one_line_that_names_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verify_reference, "list_points", lambda: [make_point(1, 2)])
    monkeypatch.setattr(verify_reference, "measure", raising(KeyboardInterrupt()))
    assert verify_reference.main([str(tmp_path)]) == 130
    assert capsys.readouterr().err.splitlines()[-1].endswith("make verify-reference")
    assert verify_reference.main(["one", "two"]) == 1
