"""How many rounds are drawn of records that were measured elsewhere."""

from __future__ import annotations

from dataclasses import replace

from harness.planning.artefacts import PlannedTrial, choices_from, plan_artefact
from harness.planning.config import Composer
from harness.records.store import Held
from plots.drawable import Elsewhere
from tests.support.records import made_up_record


def held(trials: list[PlannedTrial], rounds: list[int]) -> Elsewhere:
    """Records of so many rounds of each."""
    pairs = zip(trials, rounds, strict=True)
    return Elsewhere(Held(tuple(made_up_record(t, r) for t, n in pairs for r in range(n))))


def test_rounds_are_those_of_the_records_and_what_others_have_is_missing() -> None:
    choices = choices_from({"scale": "smoke", "device": "cpu"}, {}, frozenset({"sst"}))
    planned = plan_artefact("cavs_fig8d", choices, Composer())[:3]
    trials = [replace(trial, rounds=6) for trial in planned]
    found = held(trials, [3, 1, 0]).rounds(trials)
    assert [[one is not None for one in rounds] for rounds in found] == [
        [True, True, True],
        [True, False, False],
        [False, False, False],
    ]
    fewer = [replace(trial, rounds=2) for trial in planned]
    assert [len(rounds) for rounds in held(trials, [3, 3, 3]).rounds(fewer)] == [2, 2, 2]
    assert [len(rounds) for rounds in held(trials, [0, 0, 0]).rounds(trials)] == [1, 1, 1]
