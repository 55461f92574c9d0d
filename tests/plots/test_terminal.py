"""Closing lines of `bench` and `bench-try`: rankings, speedups and the summary of a first run."""

from __future__ import annotations

from typing import Any

import pytest

from dynbatch.harness.commands import first_look
from dynbatch.harness.planning.kinds import read_systems
from dynbatch.harness.records.record import Record
from dynbatch.harness.records.tidy import build_frame
from dynbatch.harness.values.paths import CONF_DIR
from dynbatch.plots.terminal import compare_with_baselines, rank_systems
from tests.support.records import plain_record, turn

LABELS = {system.name: system.label for system in read_systems(CONF_DIR)}
WORKLOAD = "tree_fc complete_trees mode=train batch_size=2 hidden_size=8"


def build_records(speeds: dict[str, float], n_rounds: int = 1, **changes: Any) -> list[Record]:
    return [
        plain_record(round_, {"instances_per_s": speed}, system=system, **changes)
        for system, speed in speeds.items()
        for round_ in range(n_rounds)
    ]


def rank(records: list[Record]) -> list[str]:
    return list(rank_systems(build_frame(records)))


def compare(records: list[Record]) -> list[str]:
    return list(compare_with_baselines(build_frame(records), "vertex", read_systems(CONF_DIR)))


def test_systems_are_ranked_by_speed() -> None:
    (line,) = rank(build_records({"dynet": 100, "vertex": 300, "cavs": 200}, n_rounds=2))
    assert line == (
        f"{WORKLOAD}: fastest vertex, 300 instances/s; speedup 1.50 (1.50 to 1.50) over cavs,"
        " 3.00 (3.00 to 3.00) over dynet"
    )


def test_no_system_is_the_fastest_with_a_speedup_below_one() -> None:
    """Its median turn is shorter, but that of the other is in most cycles."""
    seconds = {"vertex": (2.0, 2.0, 5.0, 5.0, 1.0), "dynet": (2.1, 2.1, 4.9, 4.9, 0.9)}
    shared = {"block": "one", "turns": [turn(cycle) for cycle in range(5)]}
    records = [
        plain_record(0, {"passes_s": passes_s, **shared}, system=system)
        for system, passes_s in seconds.items()
    ]
    assert records[0].instances_per_s > records[1].instances_per_s  # type: ignore[operator]
    (line,) = rank(records)
    assert ": fastest dynet, " in line
    assert "; speedup 1.02" in line
    assert "over vertex" in line


def test_policies_of_one_system_are_ranked() -> None:
    agenda = build_records({"vertex": 300}, policy="agenda")
    (line,) = rank([*agenda, *build_records({"vertex": 200}, policy="depth")])
    assert line.endswith(
        "fastest vertex policy=agenda, 300 instances/s; speedup 1.50 over vertex policy=depth"
    )


def test_options_of_one_system_are_ranked_and_named_if_they_differ() -> None:
    fused = build_records({"vertex": 300}, 2, system_options={"fusion": True, "layout": "pq"})
    plain = build_records({"vertex": 200}, 2, system_options={"fusion": False, "layout": "pq"})
    (line,) = rank([*fused, *plain, *build_records({"dynet": 100}, 2)])
    assert line.partition(": ")[2] == (
        "fastest vertex fusion=true, 300 instances/s; speedup 1.50 (1.50 to 1.50) over vertex"
        " fusion=false, 3.00 (3.00 to 3.00) over dynet"
    )


def test_a_dagger_names_its_warnings() -> None:
    warned = plain_record(
        0, {"instances_per_s": 100, "warnings": ["background_load"]}, system="dynet"
    )
    (line,) = rank([*build_records({"vertex": 300, "cavs": 200}), warned])
    assert line.endswith("1.50 over cavs, 3.00\N{DAGGER} over dynet (\N{DAGGER} background_load)")


def test_workloads_are_not_compared_and_failures_and_empty_systems_are_left_out() -> None:
    failed = plain_record(0, {"status": "crash", "reason": "made up"}, system="cavs", batch_size=2)
    empty = plain_record(0, {"check": {"status": "skipped"}}, system="null", batch_size=2)
    fast = build_records({"vertex": 300}, batch_size=2)
    assert rank([*fast, *build_records({"dynet": 1}, batch_size=4), failed, empty]) == []
    assert rank([]) == []


def test_an_experiment_is_compared_with_its_fastest_baseline_and_the_bound() -> None:
    speeds = {"vertex": 300.0, "dynet": 200, "torch_levels": 100, "vertex_shared": 900}
    bounds = {"products": 400.0, "products_cut": 500}
    (line,) = compare(build_records(speeds | bounds, 2))
    assert line.startswith(
        f"{WORKLOAD}: {LABELS['vertex']} is 1.50 (1.50 to 1.50) times as fast as "
    )
    assert f"the fastest of 2 baselines, {LABELS['dynet']}; " in line
    assert line.endswith("; reaches 60.0% of the matmul bound")


@pytest.mark.parametrize(
    "speeds",
    [{"vertex": 300.0, "cavs": 500}, {"dynet": 300.0, "products": 400}, {}],
    ids=["no baseline", "no base", "nothing"],
)
def test_an_experiment_without_both_sides_prints_nothing(speeds: dict[str, float]) -> None:
    assert compare(build_records(speeds, 2)) == []


def test_a_baseline_that_failed_takes_no_part() -> None:
    wrong = plain_record(0, {"status": "wrong_result", "reason": "made up"}, system="dynet")
    (line,) = compare([*build_records({"vertex": 300, "torch_levels": 100}), wrong])
    assert f"3.00 times as fast as the fastest of 1 baseline, {LABELS['torch_levels']}" in line


def test_files_of_ones_own_are_named_once_by_their_shortest_ends() -> None:
    paths = ("/data/old/My trees.txt", "/data/new/My trees.txt", "/data/b.txt")
    records = [
        plain_record(system=system, dataset_options={"path": path, "sha256": {"train": path}})
        for path in paths
        for system in ("vertex", "dynet")
    ]
    names = [line.partition(" mode=")[0] for line in rank(records)]
    assert names == [
        f"tree_fc complete_trees (your data, {name})"
        for name in ("old/My trees.txt", "new/My trees.txt", "b.txt")
    ]
    assert all(" hidden_size=8: fastest" in line for line in rank(records))


def test_bench_try_rejects_other_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert first_look.main(["batch_size=3"]) == 1
    assert capsys.readouterr().err == (
        "bench-try: unexpected argument batch_size=3: expected results_dir=DIRECTORY or nothing;"
        " remove it\n"
    )
