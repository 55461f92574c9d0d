"""A first look: table and sentence are what the records say, also where they say nothing."""

from __future__ import annotations

from typing import Any

import pytest

from harness.commands import first_look as command
from harness.planning.artefacts import Choices, PlannedTrial, plan_artefact
from harness.planning.compose import Composer
from plots.numbers.artefact import Artefact
from plots.numbers.gather import gather
from plots.words.first_look import lines_of, sentence_of
from tests.support.made_up_records import write_made_up_records

Speeds = dict[str, tuple[float, float] | None]  # of two rounds; None: it crashed


def artefact_of(choices: Choices, composer: Composer, speeds: Speeds, **more: Any) -> Artefact:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        found = speeds[trial.settings["system"]]
        if found is None:
            return {"status": "crash", "reason": "made up", "instances_per_s": None}
        return {"instances_per_s": found[round_], **more}

    trials = plan_artefact("first_look", choices, composer)
    write_made_up_records(trials, choices, change)
    return gather("first_look", choices, trials)


def test_the_fastest_stands_first_with_what_the_engine_gains(
    choices: Choices, composer: Composer
) -> None:
    speeds: Speeds = {"vertex": (300, 340), "torch_levels": (150, 150), "dynet": (200, 200)}
    head, *rows = lines_of(artefact_of(choices, composer, speeds, n_batches=31.0, lower_bound=30.0))
    assert head.split()[0] == "system"
    assert [row[:14] for row in rows[:3]] == ["Vertex engine ", "DyNet agenda  ", "PyTorch levels"]
    assert [row.split()[-1] for row in rows[:3]] == ["31"] * 3
    assert rows[3] == ""
    assert rows[4] == (
        "Vertex engine trains 1.60 times as fast as the best of 2 peers, DyNet agenda (1.50 to"
        " 1.70). It runs a mini-batch in 31 batches; no order needs fewer than 30."
    )


@pytest.mark.parametrize(
    ("speeds", "words"),
    [
        ({"vertex": (90, 120), "torch_levels": (50, 50), "dynet": (100, 100)}, "told apart here"),
        ({"vertex": (50, 50), "torch_levels": (60, 60), "dynet": (100, 100)}, "makes 0.50 of it"),
        ({"vertex": (50, 50), "torch_levels": None, "dynet": (25, 25)}, "as its peer, DyNet"),
        ({"vertex": None, "torch_levels": (9, 9), "dynet": (8, 8)}, "Nothing was learned"),
        ({"vertex": (9, 9), "torch_levels": None, "dynet": None}, "Nothing was learned"),
    ],
)
def test_the_sentence_is_no_more_than_the_records_say(
    choices: Choices, composer: Composer, speeds: Speeds, words: str
) -> None:
    assert words in sentence_of(artefact_of(choices, composer, speeds))


def test_a_doubt_is_passed_on(choices: Choices, composer: Composer) -> None:
    speeds: Speeds = {"vertex": (300, 300), "torch_levels": (1, 1), "dynet": (200, 200)}
    assert "measured with warnings: busy" in sentence_of(
        artefact_of(choices, composer, speeds, warnings=("busy",))
    )


def test_a_word_that_it_does_not_take_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["batch_size=3"]) == 1
    assert capsys.readouterr().err == (
        "bench-try: results_dir=FOLDER is all it takes, not batch_size=3\n"
    )
