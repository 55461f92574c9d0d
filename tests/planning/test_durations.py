"""Expected durations: from records of this machine if there are any, else by rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.durations import (
    OTHERS_S,
    PROCESS_S,
    STARTED_S,
    Durations,
    Timed,
    parse_duration,
    read_durations,
)
from dynbatch.harness.records.record import build_record_path, write_record
from tests.support.measured import MakeSpec
from tests.support.records import plain_record


def test_the_same_trial_counts_before_others_alike(make_spec: MakeSpec) -> None:
    spec = make_spec()
    same = (spec.trial_id, spec.system, spec.model, spec.mode)
    other_mode = (spec.system, spec.model, "other")
    other_model = (spec.system, "other", "other")
    known = [
        Timed("x", *other_model, 8.0),
        Timed("y", *other_mode, 4.0),
        Timed("z", *same[1:], 2.0),
        Timed(*same, 1.0),
        Timed(*same, 1.5),
        Timed(*same, 9.0),
    ]
    found = [Durations(known[:k]).estimate_seconds(spec, 0) for k in (1, 2, 3, 6)]
    assert found == [8.0, 4.0, 2.0, 1.5]


def test_first_and_later_rounds_are_estimated_apart(make_spec: MakeSpec) -> None:
    """Without a record of its own, a later round takes what it takes for other trials."""
    spec = make_spec()
    same = (spec.trial_id, spec.system, spec.model, spec.mode)
    others = [Timed(f"{k}", "x", "y", "z", s, round=k % 2) for k, s in enumerate((8.0, 2.0))]
    others += [Timed("both", "x", "y", "z", s, round=k) for k, s in enumerate((10.0, 5.0, 7.0))]
    first, later = Timed(*same, 4.0), Timed(*same, 1.0, round=2)

    def estimate(*known: Timed) -> list[float]:
        durations = Durations(known)
        return [durations.estimate_seconds(spec, k) for k in (0, 1)]

    assert estimate(first, later) == [4.0, 1.0]
    assert estimate(first) == [4.0, 4.0], "nothing tells how much shorter a later round is"
    assert estimate(first, *others) == pytest.approx([4.0, 4.0 * 6 / 10])
    assert estimate(later, *others) == pytest.approx([1.0 * 10 / 6, 1.0])


@pytest.mark.parametrize(
    ("adapter", "process_s"),
    [("dynbatch.systems.on_jax.scan", PROCESS_S["on_jax"]), ("elsewhere.mine", OTHERS_S)],
)
def test_estimate_needs_no_records(make_spec: MakeSpec, adapter: str, process_s: float) -> None:
    spec = make_spec(adapter=adapter)
    assert Durations().estimate_seconds(spec, 0) == process_s + 2 * spec.timing.min_seconds


def test_records_of_this_kind_of_cpu_tell(tmp_path: Path) -> None:
    times = {"started_at": "2026-01-01T00:00:00+00:00", "finished_at": "2026-01-01T00:00:07+00:00"}
    for round_, (cpu, status) in enumerate([("ours", "ok"), ("other", "ok"), ("ours", "crash")]):
        record = plain_record(round_, {**times, "machine": {"cpu": cpu}, "status": status})
        write_record(build_record_path(tmp_path, record.trial_id, round_), record)
    damaged = build_record_path(tmp_path, "damaged", 0)
    damaged.parent.mkdir()
    damaged.write_text(json.dumps({"machine": {"cpu": "ours"}})[:-3])
    (timed,) = read_durations(tmp_path, "ours")
    assert (timed.round, timed.seconds) == (0, 7 + STARTED_S)


def test_systems_of_a_block_share_its_time(tmp_path: Path) -> None:
    def write(system: str, block: str, began: int, ended: int) -> None:
        start, end = (f"2026-01-01T00:00:{seconds:02}+00:00" for seconds in (began, ended))
        times = {"started_at": start, "finished_at": end}
        changes = {**times, "block": block, "machine": {"cpu": "ours"}}
        record = plain_record(0, changes, system=system)
        write_record(build_record_path(tmp_path, record.trial_id, 0), record)

    write("a", "first", 0, 18)
    write("b", "first", 2, 20)
    write("c", "second", 20, 25)
    found = {timed.system: timed.seconds for timed in read_durations(tmp_path, "ours")}
    assert found == {"a": 10 + STARTED_S, "b": 10 + STARTED_S, "c": 5 + STARTED_S}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45m", 2700), ("1h30m", 5400), ("90s", 90), ("1.5h", 5400), (" 2m30s ", 150)],
)
def test_lengths_of_time_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "45", "m", "0m", "-5m", "5 m", "30m1h", "soon"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a duration such as 45m, 1h30m or 90s"):
        parse_duration(text)
