"""The CSV beside a picture says when and with what each system was measured."""

from __future__ import annotations

import csv
from pathlib import Path

from harness.planning.artefacts import Choices, plan_artefact
from harness.planning.compose import Composer
from plots.numbers.gather import gather
from plots.writing.facts import add_facts
from tests.support.made_up_records import write_made_up_records

NAME = "first_look"


def test_rows_of_systems_get_their_facts_and_others_none(
    choices: Choices, composer: Composer, tmp_path: Path
) -> None:
    trials = plan_artefact(NAME, choices, composer)
    write_made_up_records(
        trials, choices, lambda trial, round_: {"versions": {"made_up": "1.5", "flags": "-O3"}}
    )
    path = tmp_path / "numbers.csv"
    path.write_text("source,system,value\nmeasured,vertex,3\npaper,Cavs,4\n")
    artefact = gather(NAME, choices, trials)
    add_facts(artefact, path)
    with path.open(newline="") as file:
        ours, theirs = csv.DictReader(file)
    assert (ours["value"], ours["measured_on"]) == ("3", "2026-01-01")
    assert ours["versions"] == "flags -O3; made_up 1.5"
    assert (theirs["value"], theirs["versions"]) == ("4", "")


def test_what_is_of_no_system_stays_as_it_is(
    choices: Choices, composer: Composer, tmp_path: Path
) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("policy,value\nagenda,3\n")
    add_facts(gather(NAME, choices, plan_artefact(NAME, choices, composer)), path)
    assert path.read_text() == "policy,value\nagenda,3\n"
