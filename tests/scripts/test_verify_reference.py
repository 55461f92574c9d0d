"""Verification of committed results on another machine, on points that are chosen and judged."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from dynbatch.harness.errors import ConfigError
from scripts import verify_reference
from scripts.verify_reference import (
    DIFFERS,
    HOLDS,
    N_POINTS,
    ORDER_HOLDS,
    Point,
    build_settings,
    build_table,
    list_points,
)
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
        settings = build_settings(point, {})
        assert {"model", "dataset", "hidden_size", "batch_size"} <= settings.keys(), "from the plan"
        swept = [key for key, value in settings.items() if isinstance(value, list)]
        assert swept == ["system"]
        assert point.low <= point.speedup <= point.high


def test_missing_data_are_replaced_and_both_systems_share_a_block(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    settings = build_settings(make_point(1, 2), {"BENCH_DATA": str(tmp_path / "data")})
    assert settings["dataset"] == "sst_synthetic"
    assert settings["system"] == ["vertex", "torch_levels"]


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


def test_a_refused_point_is_a_line_without_a_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verify_reference, "measure", raising(ConfigError("no such data")))
    point = make_point(1, 2)
    measured = verify_reference.measure_point(point, tmp_path)
    assert capsys.readouterr().err == "verify-reference: no such data\n"
    assert list(build_table([point], [measured]).result) == ["refused"]


def test_an_interrupt_is_one_line_that_names_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verify_reference, "list_points", lambda: [make_point(1, 2)])
    monkeypatch.setattr(verify_reference, "measure_point", raising(KeyboardInterrupt()))
    assert verify_reference.main([str(tmp_path)]) == 130
    assert capsys.readouterr().err.splitlines()[-1].endswith("make verify-reference")
    assert verify_reference.main(["one", "two"]) == 1
