"""Peers that were called off: their numbers stand on the rounds that they have, and say so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.planning.artefacts import Choices, PlannedTrial, plan_artefact
from harness.planning.compose import Composer
from plots.numbers.artefact import Artefact
from plots.numbers.gather import gather
from plots.numbers.points import Point, point_of
from plots.tables.peers import table_of
from plots.words.workloads import by_workload
from tests.support.made_up_records import write_made_up_records
from tests.support.plain_records import plain_record

HEADLINE = "headline_seq2seq"
SLOW = "dynet_depth"


OFF = {"status": "called_off", "reason": "far behind"}


def test_only_rounds_at_the_end_are_no_part_of_a_trial() -> None:
    good, gone = plain_record(0), plain_record(1, OFF)
    assert point_of({}, (good, good, gone, gone)) == Point({}, (good, good), is_called_off=True)
    assert point_of({}, (gone,)) == Point({}, (), is_called_off=True)
    for whole in [(good, gone, good), (good, gone, None), (good, good), ()]:
        assert point_of({}, whole) == Point({}, whole, is_called_off=False)


def test_bench_ranks_who_was_called_off_by_the_rounds_that_it_has() -> None:
    slow = [plain_record(round_, {"instances_per_s": 10.0}, system="slow") for round_ in range(2)]
    slow += [plain_record(round_, OFF, system="slow") for round_ in range(2, 4)]
    quick = [plain_record(round_, {"instances_per_s": 90.0}, system="quick") for round_ in range(4)]
    ((_, points),) = by_workload([*slow, *quick])
    found = {point.settings["system"]: (point.status, len(point.records)) for point in points}
    assert found == {"slow": ("ok", 2), "quick": ("ok", 4)}


def drawn(choices: Choices, composer: Composer, *, is_called_off: bool) -> Artefact:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        if is_called_off and trial.settings["system"] == SLOW and round_ >= 2:
            return {"status": "called_off", "reason": "far behind", "samples_s": ()}
        return {}

    trials = plan_artefact(HEADLINE, choices, composer)
    write_made_up_records(trials, choices, change)
    return gather(HEADLINE, choices, trials)


@pytest.mark.slow
def test_a_table_says_on_how_many_rounds_it_stands(choices: Choices, composer: Composer) -> None:
    paper = replace(choices, scale="paper")
    artefact = drawn(paper, composer, is_called_off=True)
    points = {p.settings["system"]: p for p in artefact.points if p.settings["mode"] == "infer"}
    assert (len(points[SLOW].records), len(points["vertex"].records)) == (2, 6)
    assert points[SLOW].status == "ok"
    table = table_of(artefact, "systems")
    row = dict(table.rows)[artefact.label(SLOW)]
    number, n_rounds = row[0].text.split()
    assert number.replace(",", "").isdigit()
    assert n_rounds == "[2]"
    assert "[2]: of so many rounds alone." in table.notes
    assert all("[2]" not in cell.text for cell in dict(table.rows)[artefact.label("vertex")])
    (note,) = [note for note in table.notes if note.startswith("Median of")]
    assert note.startswith("Median of 2 to 6 rounds")
    assert "Fewer than 6: peers that were called off, far behind the fastest or at a limit." in note
    for shown in (
        table_of(artefact, "strategies"),  # all of which have all rounds
        table_of(drawn(paper, composer, is_called_off=False), "systems"),
    ):
        assert not any("called off" in note or "so many rounds" in note for note in shown.notes)
        assert any(note.startswith("Median of 6 rounds") for note in shown.notes)


@pytest.mark.slow
def test_a_setting_without_a_record_is_named_and_has_no_columns(
    choices: Choices, composer: Composer
) -> None:
    paper = replace(choices, scale="paper")
    trials = plan_artefact(HEADLINE, paper, composer)
    write_made_up_records(
        trials, paper, lambda trial, _: {} if trial.settings["mode"] == "infer" else None
    )
    table = table_of(gather(HEADLINE, paper, trials), "systems")
    assert {column.group for column in table.columns} == {"inference"}
    missing = "training, training, words given at once"
    assert f"Not measured yet: {missing}." in table.notes
