"""Sittings of the pipeline: each round of each trial in one, in order, and only for who asks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.planning import sittings as module
from harness.planning.artefacts import PlannedTrial
from harness.planning.budget import Step
from harness.planning.rounds import order_of_round
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


def test_what_no_command_line_could_hold_is_cut(
    plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_TRIALS", 1)
    found = sittings_of(plans)
    assert {len(sitting.trials) for sitting in found} == {1}
    assert len({(sitting.name, sitting.round) for sitting in found}) == len(found)


def test_files_say_what_is_true(plans: Plans, tmp_path: Path) -> None:
    first, second, *others = sittings_of(plans)
    for age, record in enumerate(first.records(tmp_path)):
        record.parent.mkdir(parents=True)
        record.write_text("{}")
        module.os.utime(record, (1000 + age, 1000 + age))
    write_measured(second.file(tmp_path), [])  # whose records somebody deleted
    lacking = {step for sitting in (second, *others) for step in sitting.steps}
    keep_true((first, second, *others), tmp_path, lacking.__contains__)
    assert first.file(tmp_path).stat().st_mtime == 999 + len(first.trials)
    assert not any(sitting.file(tmp_path).exists() for sitting in (second, *others))
    first.file(tmp_path).write_text("as it was")
    keep_true((first,), tmp_path, lacking.__contains__)
    assert first.file(tmp_path).read_text() == "as it was"
