"""A number that is missing prints why, and one to be wary of bears a mark and a note."""

from __future__ import annotations

from typing import Any

import pytest

from harness.planning.artefacts import Choices, PlannedTrial
from harness.planning.compose import Composer
from plots.numbers.gather import gather
from plots.tables import peers
from plots.tables.speedups import table_of
from plots.writing.render import to_html, to_latex, to_markdown
from tests.support.artefacts import TABLE, lines_of, measured, run_draw

pytestmark = pytest.mark.slow  # all of them together take seconds


@pytest.mark.parametrize("status", ["oom", "timeout", "crash", "unsupported", "wrong_result"])
def test_a_missing_number_prints_its_status(
    status: str, choices: Choices, composer: Composer
) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        fails = trial.settings["system"] == "fold_policy" and trial.settings["batch_size"] == 16
        # The time that a wrong result has in its record must not be shown.
        return (
            {"status": status, "reason": "made up"} if fails and round_ == trial.rounds - 1 else {}
        )

    trials = measured(TABLE, choices, composer, change)
    table = table_of(gather(TABLE, choices, trials), "strategies")
    row = dict(table.rows)["16"]
    column = [c.label for c in table.columns].index("Fold's policy")
    assert row[column].text == status
    assert any(f"Fold's policy: {status}: made up" in note for note in table.notes)
    for text in (to_markdown(table), to_latex(table), to_html(table)):
        assert status.replace("_", r"\_") in text or status in text


def test_a_record_that_is_not_there_is_called_missing(choices: Choices, composer: Composer) -> None:
    trials = measured(TABLE, choices, composer, lambda trial, round_: None)
    table = table_of(gather(TABLE, choices, trials), "systems")
    assert {cell.text for cell in dict(table.rows)["16"][:3]} == {"missing"}
    assert run_draw(TABLE, choices) == 0


def test_a_phase_that_a_system_cannot_tell_is_said_so(choices: Choices, composer: Composer) -> None:
    trials = measured(TABLE, choices, composer, lambda trial, round_: {"phases_s": {}})
    table = table_of(gather(TABLE, choices, trials), "systems")
    assert dict(table.rows)["16"][0].text == "not told"


def test_warnings_leave_a_dagger_and_a_footnote(choices: Choices, composer: Composer) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        return {"warnings": ("busy",)} if trial.settings["system"] == "cavs" else {}

    trials = measured(TABLE, choices, composer, change)
    table = table_of(gather(TABLE, choices, trials), "strategies")
    cavs, fold, *_, ratio = dict(table.rows)["16"][:4]
    assert (cavs.warned, fold.warned, ratio.warned) == (True, False, True)
    assert any("busy (3)" in note for note in table.notes)


@pytest.mark.parametrize(("build", "is_marked"), [("wheel 2.2", True), ("source 2.1.2", False)])
def test_ratios_against_the_wheel_of_dynet_are_marked(
    build: str, is_marked: bool, choices: Choices, composer: Composer
) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        more = {"dynet_build": build} if trial.settings["system"] in real else {}
        return {"versions": {"made_up": "1.0", **more}}

    name, real = "headline_tree_lstm", ("dynet", "dynet_depth")
    artefact = gather(name, choices, measured(name, choices, composer, change))
    table = peers.table_of(artefact, "systems")
    warned = {
        (label, column.label)
        for label, cells in table.rows
        for column, cell in zip(table.columns, cells, strict=True)
        if cell.warned and label != peers.BEST
    }
    ratio = peers.WORDS[peers.SPEEDUP]
    marked = {(label, ratio) for label, _ in table.rows if label in ("DyNet agenda", "DyNet depth")}
    assert len(marked) == 2
    assert warned == (marked if is_marked else set()), "ratios only, and only those"
    assert any("dynet_wheel (2)" in note for note in table.notes) == is_marked
    assert not any("dynet_wheel (" in note for note in peers.table_of(artefact, "strategies").notes)
    assert run_draw(name, choices) == 0
    lines = lines_of(choices.results_dir / f"tables/{name}_systems.csv")
    named = {line["quantity"] for line in lines if "dynet_wheel" in line["warnings"]}
    assert named - {peers.OVER_BEST} == ({"overall_speedup"} if is_marked else set())
