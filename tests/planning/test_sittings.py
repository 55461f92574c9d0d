"""Sittings of the pipeline: each round of each trial in one, in order, and only for who asks."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import OutputError
from harness.planning import sittings as module
from harness.planning.artefacts import PlannedTrial
from harness.planning.budget import Step
from harness.planning.ordering import order_of_round
from harness.planning.running import begin_run
from harness.planning.sittings import Sitting, keep_true, sittings_of
from harness.records.measured import write_measured
from harness.trials.spec import TrialSpec

Plans = dict[str, list[PlannedTrial]]


@pytest.fixture
def plans(make_spec: Callable[..., TrialSpec]) -> Plans:
    """A table of three systems in two rounds, and a headline of two of them in three."""

    def plan(systems: str, rounds: int) -> list[PlannedTrial]:
        grid = [(system, size) for size in (8, 16) for system in systems]
        return [
            PlannedTrial(
                make_spec(system=system, batch_size=size),
                {"system": system, "batch_size": size},
                (),
                rounds,
            )
            for system, size in grid
        ]

    return {"table": plan("abc", 2), "headline": plan("ab", 3)}


def in_words(sitting: Sitting) -> tuple[int, int, set[str], set[str]]:
    sizes = {trial.spec.batch_size for trial in sitting.trials}
    assert len(sizes) == 1
    systems = {trial.spec.system for trial in sitting.trials}
    return sitting.round, sizes.pop(), systems, set(sitting.artefacts)


def test_each_round_of_each_trial_is_in_one_sitting(plans: Plans) -> None:
    found = [step for sitting in sittings_of(plans) for step in sitting.steps]
    wanted = {
        Step(trial.trial_id, round_)
        for plan in plans.values()
        for trial in plan
        for round_ in range(trial.rounds)
    }
    assert len(found) == len(set(found))
    assert set(found) == wanted


def test_a_sitting_is_what_the_same_artefacts_want_at_one_point(plans: Plans) -> None:
    found = [in_words(sitting) for sitting in sittings_of(plans)]
    both = {"table", "headline"}
    for size in (8, 16):
        for round_ in (0, 1):
            assert (round_, size, {"a", "b"}, both) in found
            assert (round_, size, {"c"}, {"table"}) in found
        assert (2, size, {"a", "b"}, {"headline"}) in found
    assert len(found) == 10


def test_rounds_follow_each_other_and_systems_stand_as_drawn(plans: Plans) -> None:
    found = sittings_of(plans)
    rounds = [sitting.round for sitting in found]
    assert rounds == sorted(rounds)
    for sitting in found:
        specs = [trial.spec for trial in sitting.trials]
        assert specs == order_of_round(specs, sitting.round, lambda spec: spec)


def test_names_tell_sittings_apart_and_stay(plans: Plans) -> None:
    found = sittings_of(plans)
    assert len({(sitting.name, sitting.round) for sitting in found}) == len(found)
    names = [{s.name for s in found if s.round == round_} for round_ in (0, 1)]
    assert names[0] == names[1]
    turned = sittings_of(dict(reversed(plans.items())))
    assert {s.name for s in turned} == {s.name for s in found}
    assert {s.name for s in sittings_of({"table": plans["table"]})}.isdisjoint(names[0])


def test_what_no_command_line_could_hold_is_cut_alike_in_every_round(
    plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_TRIALS", 2)
    plans["table"] = [replace(trial, rounds=6) for trial in plans["table"]]
    found = sittings_of({"table": plans["table"]})
    members = [{trial.trial_id for trial in sitting.trials} for sitting in found]
    assert {len(ids) for ids in members} == {1, 2}
    by_name: dict[str, list[set[str]]] = {}
    for sitting, ids in zip(found, members, strict=True):
        by_name.setdefault(sitting.name, []).append(ids)
    assert len(by_name) == 4
    for several in by_name.values():
        assert len(several) == 6
        assert all(ids == several[0] for ids in several)


@pytest.fixture
def first(plans: Plans, tmp_path: Path) -> Sitting:
    """A sitting that is over: its records are there."""
    sitting = sittings_of(plans)[0]
    for age, record in enumerate(sitting.records(tmp_path)):
        record.parent.mkdir(parents=True)
        record.write_text("{}")
        os.utime(record, (1000 + age, 1000 + age))
    return sitting


def nothing(_: Step) -> bool:
    return False


def test_a_file_is_as_old_as_the_newest_record(first: Sitting, tmp_path: Path) -> None:
    keep_true([first], tmp_path, nothing)
    assert first.file(tmp_path).stat().st_mtime == 999 + len(first.trials)
    first.file(tmp_path).write_text("as it was")
    os.utime(first.file(tmp_path), (5000, 5000))
    keep_true([first], tmp_path, nothing)
    assert first.file(tmp_path).read_text() == "as it was"
    os.utime(first.records(tmp_path)[0], (6000, 6000))  # measured again, by bench
    keep_true([first], tmp_path, nothing)
    assert first.file(tmp_path).stat().st_mtime == 6000


def test_what_lacks_a_record_and_what_nobody_wants_is_not_over(
    first: Sitting, plans: Plans, tmp_path: Path
) -> None:
    others = sittings_of(plans)[1:]
    for sitting in (others[0], replace(others[1], name="of an older experiment")):
        write_measured(sitting.file(tmp_path), [])
    lacking = {step for sitting in others for step in sitting.steps}
    keep_true([first, *others], tmp_path, lacking.__contains__)
    found = [path for path in (tmp_path / "sittings").rglob("*") if path.is_file()]
    assert found == [first.file(tmp_path)]


def test_nothing_is_dropped_while_a_run_counts_on_it(first: Sitting, tmp_path: Path) -> None:
    keep_true([first], tmp_path, nothing)
    with begin_run(tmp_path), begin_run(tmp_path):
        keep_true([], tmp_path, nothing)
        keep_true([first], tmp_path, lambda _: True)
        assert first.file(tmp_path).exists()
    keep_true([first], tmp_path, lambda _: True)
    assert not first.file(tmp_path).exists()


def test_where_no_results_are_none_are_made(plans: Plans, tmp_path: Path) -> None:
    keep_true(sittings_of(plans), tmp_path / "results", lambda _: True)
    assert not (tmp_path / "results").exists()


def test_a_folder_that_cannot_be_written_is_one_line(first: Sitting, tmp_path: Path) -> None:
    (tmp_path / "sittings").write_text("in the way")
    with pytest.raises(OutputError, match=r"cannot be written .*; what was kept before stays"):
        keep_true([first], tmp_path, nothing)
