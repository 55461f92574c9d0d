"""What `bench` says behind a sweep: the fastest of each workload, and by how much."""

from __future__ import annotations

from typing import Any

from harness.records.record import Record
from plots.words.ranking import lines_of
from tests.support.plain_records import plain_record


def records_of(speeds: dict[str, float], n_rounds: int = 1, **changes: Any) -> list[Record]:
    return [
        plain_record(round_, {"instances_per_s": speed}, system=system, **changes)
        for system, speed in speeds.items()
        for round_ in range(n_rounds)
    ]


def test_systems_are_told_from_the_fastest_to_the_slowest() -> None:
    (line,) = lines_of(records_of({"dynet": 100, "vertex": 300, "cavs": 200}, n_rounds=2))
    assert line == (
        "tree_fc complete_trees bs=2 h=8 train: vertex is the fastest with 300 instances/s:"
        " 1.50 [1.50-1.50] x cavs, 3.00 [3.00-3.00] x dynet"
    )


def test_policies_of_one_system_are_rivals() -> None:
    records = [
        *records_of({"vertex": 300}, policy="agenda"),
        *records_of({"vertex": 200}, policy="depth"),
    ]
    (line,) = lines_of(records)
    assert line.endswith("vertex:agenda is the fastest with 300 instances/s: 1.50 x vertex:depth")


def test_options_of_one_system_are_rivals() -> None:
    """Each with its own rounds, and named by what the others have otherwise."""
    fused = records_of({"vertex": 300}, 2, system_options={"fusion": True, "layout": "pq"})
    plain = records_of({"vertex": 200}, 2, system_options={"fusion": False, "layout": "pq"})
    (line,) = lines_of([*fused, *plain, *records_of({"dynet": 100}, 2)])
    assert line.partition(": ")[2] == (
        "vertex fusion=true is the fastest with 300 instances/s: 1.50 [1.50-1.50] x vertex"
        " fusion=false, 3.00 [3.00-3.00] x dynet"
    )


def test_a_dagger_says_what_it_is_for() -> None:
    warned = plain_record(0, {"instances_per_s": 100, "warnings": ["busy"]}, system="dynet")
    (line,) = lines_of([*records_of({"vertex": 300, "cavs": 200}), warned])
    assert line.endswith("1.50 x cavs, 3.00\N{DAGGER} x dynet (\N{DAGGER} busy)")


def test_workloads_are_never_compared_and_failures_take_no_part() -> None:
    failed = plain_record(0, {"status": "crash", "reason": "made up"}, system="cavs", batch_size=2)
    alone = [*records_of({"vertex": 300}, batch_size=2), *records_of({"dynet": 1}, batch_size=4)]
    assert list(lines_of([*alone, failed])) == []


def test_what_computes_nothing_is_no_rival() -> None:
    nothing = plain_record(0, {"check": {"status": "skipped"}}, system="null")
    assert list(lines_of([*records_of({"vertex": 300}), nothing])) == []
