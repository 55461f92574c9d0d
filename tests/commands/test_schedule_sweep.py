"""`bench-schedule` on several mini-batches in one call, and the file of its rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from dynbatch.harness.commands.schedule import main
from dynbatch.harness.counts.request import expand_points
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.config import Composer

Output = pytest.CaptureFixture[str]
pytestmark = pytest.mark.slow  # together they take seconds

GENERATED = "dataset=sst_synthetic,lattice_synthetic"


ONE = ["model=tree_lstm", "dataset=sst_synthetic", "batch_size=8", "policy=agenda,depth"]
SIZE_CHANGES_SLOWEST = [
    ["hidden_size=4", f"batch_size={size}", f"granularity={granularity}"]
    for size in (8, 64)
    for granularity in ("vertex", "operator")
]


@pytest.mark.parametrize(
    ("settings", "points"),
    [
        (ONE, [ONE]),
        (["granularity=vertex,operator", "batch_size=8,64", "hidden_size=4"], SIZE_CHANGES_SLOWEST),
        (["batch_size=8,8,16"], [["batch_size=8"], ["batch_size=16"]]),
        (
            ["model=tree_lstm,lattice_lstm,tree_gru", GENERATED],
            [
                ["model=tree_lstm", "dataset=sst_synthetic"],
                ["model=lattice_lstm", "dataset=lattice_synthetic"],
                ["model=tree_gru", "dataset=sst_synthetic"],
            ],
        ),
    ],
)
def test_values_are_combined_and_models_meet_data_sets_of_their_kind(
    settings: list[str], points: list[list[str]]
) -> None:
    assert expand_points(settings, Composer()) == points


UNLIKE = "differ in the kind of instances"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([*ONE[1:2], "model=tree_lstm,lattice_gru"], f"model=lattice_gru and .* dataset {UNLIKE}"),
        ([*ONE[:1], GENERATED], f"dataset=lattice_synthetic and .* model {UNLIKE}"),
        (["model=tree_lstm,no_such", GENERATED], "model=no_such is unknown; choose one of"),
    ],
)
def test_settings_without_a_match_are_named(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        expand_points(settings, Composer())


SWEEP = ("model=tree_lstm,lattice_lstm", GENERATED, "granularity=vertex,operator")
SMALL = ("hidden_size=4", "timing.min_seconds=0")
SIZES = ("batch_size=2,3", *SMALL, "policy=agenda,sufficient")
# Only durations and the time of day differ between two counts of the same mini-batch.
TIMES = ("schedule_s", "counted_at")


def test_rows_identify_the_counted_settings(capsys: Output, tmp_path: Path) -> None:
    file = tmp_path / "new" / "rows.json"
    assert main([*SWEEP, *SIZES, f"out={file}", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert json.loads(file.read_text()) == rows
    keys = ("model", "dataset", "batch_size", "granularity", "policy")
    pairs = (("tree_lstm", "sst_synthetic"), ("lattice_lstm", "lattice_synthetic"))
    expected = [
        (model, dataset, size, granularity, policy)
        for model, dataset in pairs
        for size in (2, 3)
        for granularity in ("vertex", "operator")
        for policy in ("agenda", "sufficient")
    ]
    assert [tuple(row[key] for key in keys) for row in rows] == expected
    for row in rows:
        assert row["ratio"] == row["n_batches"] / row["lower_bound"] >= 1.0
        assert row["ratio_ed"] == row["n_batches_ed"] / row["lower_bound_ed"] >= 1.0
        assert (row["split"], row["offset"]) == ("train", 0)


def test_a_row_of_a_sweep_is_that_of_its_mini_batch(capsys: Output) -> None:
    def rows(*arguments: str) -> list[dict[str, object]]:
        assert main([*arguments, *SMALL, "policy=depth", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        return [{k: v for k, v in row.items() if k not in TIMES} for row in found]

    one = ("model=lattice_lstm", "dataset=lattice_synthetic", "batch_size=3")
    assert rows(*one, "granularity=operator")[0] in rows(*SWEEP, "batch_size=2,3")


@pytest.mark.parametrize("name", ["--draw", "--draw-policy", "save_policy"])
def test_pictures_and_saved_policies_are_of_one_mini_batch(
    name: str, tmp_path: Path, capsys: Output
) -> None:
    file = f"{name}={tmp_path / 'a.png'}"
    assert main([*SWEEP, "batch_size=2", "policy=fsm_sort", file]) == 1
    assert f"{name} expects one mini-batch, got 4" in capsys.readouterr().err


def test_csv_output_path_gives_csv_rows(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "rows.csv"
    typed = ["model=tree_lstm", "dataset=sst_synthetic", "batch_size=2", *SMALL]
    assert main([*typed, "policy=depth,fsm_sort", "n_following=1", f"out={file}", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    with file.open(newline="") as lines:
        found = list(csv.DictReader(lines))
    assert [row["policy"] for row in found] == ["depth", "fsm_sort"]
    for row, reported in zip(found, rows, strict=True):
        assert float(row["n_batches"]) == reported["n_batches"]
        assert float(row["following.ratio"]) == reported["following"]["ratio"]
