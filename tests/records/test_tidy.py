"""The frame of a directory: settings, quantities and counts; meanings of its columns."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import dynbatch
import dynbatch.harness.records.tidy as tidy
from dynbatch.harness.errors import RecordError
from dynbatch.harness.records.store import RecordSet, write_packed
from dynbatch.harness.records.tidy import (
    COLUMNS,
    MEASURED,
    QUANTITIES,
    SECTIONS,
    build_frame,
    frame,
)
from dynbatch.harness.values.paths import ROOT
from tests.support.records import plain_count, plain_record, write_results

REFERENCE = ROOT / "results" / "reference" / "amd-epyc-zen5-2cpu-2026-11-29" / "paper"
PHASES = {"construct": 0.01, "schedule": None, "forward": 0.1, "backward": 0.2, "update": 0.04}
WORK = {"phases_s": PHASES, "n_flop": 6e9, "bytes_touched": 3e9, "n_batches": 9, "lower_bound": 6}


def test_quantities_follow_from_one_record() -> None:
    (row,) = build_frame([plain_record(changes=WORK)]).itertuples()
    # 4 instances in 2 mini-batches of 0.5 and 0.25 s.
    assert row.throughput == pytest.approx(4 / 0.75)
    assert row.instance_s == pytest.approx(0.75 / 4)
    assert row.mini_batch_ms == pytest.approx(375)
    assert row.graph_ms == pytest.approx(10), "a phase that cannot be separated counts as 0"
    assert row.construction_s + row.computation_s == pytest.approx(row.instance_s)
    assert row.construction_percent == pytest.approx(100 * 0.005 / (0.75 / 4))
    assert row.execution_ms == pytest.approx(375 - 10)
    assert row.gflop_per_s == pytest.approx(6 / 0.3)
    assert row.flop_per_byte == 2
    assert row.over_bound == 1.5
    assert np.isnan(row.schedule_ms)
    assert np.isnan(row.peak_memory_mib), "not recorded"


def test_memory_of_the_reference_in_the_first_round_is_not_subtracted() -> None:
    rounds = [
        plain_record(n, {"peak_memory_bytes": peak << 20, "baseline_memory_bytes": before << 20})
        for n, (peak, before) in enumerate([(400, 300), (410, 200)])
    ]
    assert list(build_frame(rounds).peak_memory_mib) == [200, 210]


def test_settings_are_columns_under_their_keys() -> None:
    leaves = plain_record(batch_size=8, dataset_options={"n_leaves": 16})
    data = build_frame([leaves, plain_record(batch_size=9)])
    (of_leaves,) = data[data["dataset.options.n_leaves"] == 16].itertuples()
    assert of_leaves.batch_size == 8
    assert data["dataset.options.n_leaves"].dtype == "Int64", "integers stay integers next to gaps"


@pytest.mark.parametrize("status", ["oom", "timeout", "crash"])
def test_a_failed_round_has_no_quantity(status: str) -> None:
    failed = {"status": status, "reason": "why", "passes_s": (), "instances_per_s": None}
    data = build_frame([plain_record(changes=WORK), plain_record(1, {**WORK, **failed})])
    (row,) = data[data["status"] == status].to_dict("records")
    assert row["reason"] == "why"
    assert all(np.isnan(row[name]) for name in (*tidy.QUANTITIES, *tidy.MEASURED))


def test_contradicted_record_has_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(records: object) -> list[object]:
        wrong = {"status": "wrong_result", "reason": "differs"}
        return [record.model_copy(update=wrong) for record in records]  # type: ignore[attr-defined]

    monkeypatch.setattr(tidy, "cross_check_records", judge)
    write_results(tmp_path, [plain_record(changes=WORK)], [])
    (row,) = frame(tmp_path).itertuples()
    assert (row.status, np.isnan(row.throughput)) == ("wrong_result", True)


def test_counts_are_rows_by_graph_and_mini_batch(tmp_path: Path) -> None:
    write_results(tmp_path, [plain_record()], [plain_count()])
    data = frame(tmp_path)
    counts = data[data.kind == "count"]
    keys = list(zip(counts.graph, counts.mini_batch, strict=True))
    assert keys == [("plain", 0), ("released", 0), ("released", 1)]
    plain, released, following = counts.itertuples()
    assert released.n_batches == 3 * plain.n_batches == following.n_batches
    assert plain.over_bound == released.over_bound
    assert released.following_over_bound == following.over_bound
    assert (plain.n_parameters, released.n_parameters) == (0, 3)
    assert list(data[data.kind == "trial"].n_nodes.isna()) == [True]


def test_policy_without_released_graph_has_a_reason() -> None:
    count = plain_count(n_batches_ed=None, reason_ed="no such graph", following_ed=None)
    data = build_frame([], [count]).set_index("graph")
    assert data.loc["plain"].status == "ok"
    assert tuple(data.loc["released"][["status", "reason"]]) == ("unsupported", "no such graph")


def test_passes_are_lists_if_asked_for(tmp_path: Path) -> None:
    write_results(tmp_path, [plain_record()], [])
    assert frame(tmp_path, passes=True).passes_s.iloc[0] == [0.75]
    assert "passes_s" not in frame(tmp_path)


def test_a_directory_without_records_is_refused_and_those_in_it_are_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"no records in .*; run bench first"):
        frame(tmp_path)
    write_packed(RecordSet((plain_record(),)), tmp_path / "machine" / "paper")
    with pytest.raises(RecordError, match=r"no records in .*; choose one of machine/paper in it"):
        frame(tmp_path)
    assert len(frame(tmp_path / "machine" / "paper")) == 1


def test_path_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="does not exist"):
        frame(tmp_path / "table.csv")
    (tmp_path / "table.csv").write_text("mine")
    with pytest.raises(RecordError, match="is not a file of records; choose a results directory"):
        frame(tmp_path / "table.csv")


def test_a_frame_without_rows_has_all_columns() -> None:
    data = tidy.build_frame([])
    assert len(data) == 0
    assert {"system", "throughput", "status", "group"} <= {*data}


def test_a_construction_longer_than_the_whole_leaves_no_computation() -> None:
    slow = {**WORK, "phases_s": {**PHASES, "construct": 0.5}}  # a mini-batch takes 0.375 s
    (row,) = build_frame([plain_record(changes=slow)]).itertuples()
    assert row.construction_s > row.instance_s
    assert (row.computation_s, row.execution_ms) == (0, 0)


def test_the_list_has_every_column_of_a_frame_and_no_other() -> None:
    rows = dynbatch.frame(REFERENCE, passes=True)
    options = tuple(f"{section}." for section in SECTIONS)
    found = {str(name) for name in rows if not str(name).startswith(options)}
    assert len(set(COLUMNS)) == len(COLUMNS)
    assert found == set(COLUMNS)
    assert {*MEASURED, *QUANTITIES} <= set(COLUMNS)


def read_page() -> list[tuple[str, str, str]]:
    """Return the name, unit and meaning of each column in docs/records.md."""
    page = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    table = page.partition("| column | unit | meaning |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", table, re.MULTILINE)


def test_seconds_and_bytes_have_their_unit() -> None:
    units = {"_s": "s", "_ms": "ms", "_bytes": "B", "_mib": "MiB", "_percent": "%"}
    for name, shown, _ in read_page():
        for suffix, unit in units.items():
            if name.endswith(suffix) and not name.endswith("_per_s"):
                assert shown == unit, name


def test_the_page_has_every_column_with_its_meaning() -> None:
    page = read_page()
    assert [name for name, _, _ in page] == list(COLUMNS)
    assert all(meaning for _, _, meaning in page)


def test_a_file_of_ones_own_is_one_workload_however_its_path_is_written() -> None:
    records = [
        plain_record(dataset_options={"path": path, "sha256": {"train": content}})
        for path, content in (("a.txt", "1"), ("/here/a.txt", "1"), ("b.txt", "2"))
    ]
    rows = build_frame([*records, plain_record(dataset_options={"sha256": {"train": "1"}})])
    assert rows["dataset.options.path"].fillna("").tolist() == ["a.txt", "a.txt", "b.txt", ""]
