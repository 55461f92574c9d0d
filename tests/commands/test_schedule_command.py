"""`bench-schedule`: counts, pictures, and one-line errors for invalid input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.commands.schedule import main
from dynbatch.harness.contracts.home import SPLITS
from dynbatch.harness.contracts.policy import list_policy_names
from tests.support.corpora import write

pytestmark = pytest.mark.slow  # together they take seconds

Output = pytest.CaptureFixture[str]
WORKLOAD = ("model=tree_lstm", "dataset=sst_synthetic", "timing.min_seconds=0")
FIELDS = [
    *("n_vertices", "n_batches", "lower_bound", "n_nodes_ed", "n_batches_ed", "lower_bound_ed"),
    *("n_unbatchable_ed", "schedule_s"),
]
LABELS = [
    *("status", "model", "dataset", "split", "batch_size", "granularity", "outputs", "offset"),
    *("policy", "model_options", "cpu", "count_id", "source_sha256", "counted_at"),
]
RATIOS = ["ratio", "ratio_ed"]


def rows_of(capsys: Output, *arguments: str) -> list[dict[str, Any]]:
    assert main([*WORKLOAD, *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_holds_the_promised_fields(capsys: Output) -> None:
    rows = rows_of(capsys, "batch_size=4", "policy=sufficient,unbatched")
    assert [row["policy"] for row in rows] == ["sufficient", "unbatched"]
    for row in rows:
        assert list(row) == [*LABELS, *FIELDS, *RATIOS]
        assert row["status"] == "ok"
        assert row["schedule_s"] > 0
    assert rows[1]["n_batches"] == rows[1]["n_vertices"]
    assert rows[1]["n_batches_ed"] == rows[1]["n_nodes_ed"]
    assert rows[0]["n_batches"] == rows[0]["lower_bound"]


def test_all_policies_are_shown_unless_some_are_named(capsys: Output) -> None:
    assert [row["policy"] for row in rows_of(capsys, "batch_size=2")] == list(list_policy_names())


def test_offset_skips_instances(capsys: Output) -> None:
    both, first, second = (
        rows_of(capsys, "policy=depth", *typed)[0]["n_vertices"]
        for typed in (["batch_size=2"], ["batch_size=1"], ["batch_size=1", "offset=1"])
    )
    assert both == first + second


def test_operators_are_vertices_at_operator_granularity(capsys: Output) -> None:
    arguments = ("batch_size=3", "policy=depth,agenda", "outputs=stage")
    coarse = rows_of(capsys, *arguments)
    fine = rows_of(capsys, *arguments, "granularity=operator")
    for one, other in zip(coarse, fine, strict=True):
        assert other["n_vertices"] > 10 * one["n_vertices"]
        assert other["n_batches"] > one["n_batches"]
        assert all(one[key] == other[key] for key in FIELDS if key.endswith("_ed"))


def test_outputs_are_vertices_unless_they_are_to_be_a_stage(capsys: Output) -> None:
    (with_outputs,) = rows_of(capsys, "batch_size=2", "policy=depth")
    (without,) = rows_of(capsys, "batch_size=2", "policy=depth", "outputs=stage")
    assert with_outputs["n_vertices"] == 3 * without["n_vertices"]
    assert with_outputs["n_batches_ed"] == without["n_batches_ed"]


def test_the_table_of_the_specification(data_root: Path, capsys: Output) -> None:
    arguments = ["model=tree_lstm", "dataset=sst", f"data_root={data_root}", "batch_size=8"]
    assert main([*arguments, "policy=agenda,sufficient", "--json"]) == 0
    agenda, sufficient = json.loads(capsys.readouterr().out)
    for row, n_batches, n_batches_ed in ((agenda, 54, 92), (sufficient, 20, 58)):
        assert row["n_vertices"] == 3 * 414  # each vertex has an output and a loss
        assert row["n_batches"] == n_batches
        assert row["lower_bound"] == 20
        assert row["n_nodes_ed"] == 2072
        assert row["n_batches_ed"] == n_batches_ed
        assert row["lower_bound_ed"] == 58


def test_a_picture_is_drawn_in_the_format_of_its_name_and_the_same_again(
    tmp_path: Path, capsys: Output
) -> None:
    for name, magic in (("a.pdf", b"%PDF"), ("a.png", b"\x89PNG"), ("a.svg", b"<?xml")):
        file = tmp_path / name
        rows_of(capsys, "batch_size=1", "policy=agenda", "--draw", str(file))
        assert file.read_bytes().startswith(magic)
    before = file.read_bytes()
    rows_of(capsys, "batch_size=1", "policy=agenda", "--draw", str(file))
    assert file.read_bytes() == before


def test_counts_of_other_data_under_the_same_name_are_counted_again(
    tmp_path: Path, capsys: Output
) -> None:
    counts = []
    for name, text in (("first", "(1 (0 a) (2 b))"), ("second", "(1 (0 a) (2 (1 b) (1 a)))")):
        write(tmp_path / name / "sst", dict.fromkeys(SPLITS, f"{text}\n" * 2), ".txt")
        words = ["model=tree_lstm", "dataset=sst", "dataset.options.sha256=null", "batch_size=2"]
        places = [f"data_root={tmp_path / name}", f"records={tmp_path / 'records'}"]
        for kept in (0, 1):
            assert main([*words, *places, "policy=agenda", "timing.min_seconds=0", "--json"]) == 0
            printed = capsys.readouterr()
            assert f"{kept} reused" in printed.err
        counts.append(json.loads(printed.out)[0]["n_vertices"])
    assert counts[0] < counts[1]
    # Both counts have one name, so that drawing finds records without their data.
    assert len(list((tmp_path / "records").glob("*.json"))) == 1
