"""Reports of experiments with made-up records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.planning.artefacts import Choices, PlannedTrial
from harness.planning.compose import Composer
from plots.report import write_report
from tests.support.experiments import run_draw, write_measured

ANSWERS, HEADLINE = "answers", "headline_tree_lstm_inference"
MOST_BYTES = 8e6


def build_page(choices: Choices, *names: str) -> str:
    """Return the report of experiments that were drawn."""
    out = choices.results_dir / "report.html"
    write_report(out, [choices.results_dir], names)
    assert out.stat().st_size < MOST_BYTES
    return out.read_text(encoding="utf-8")


def draw_made_up(choices: Choices, composer: Composer, *names: str) -> None:
    """Draw experiments from made-up records."""
    for name in names:
        write_measured(name, choices, composer)
        assert run_draw(name, choices) == 0


def draw_answers(
    choices: Choices, composer: Composer, speeds: dict[str, float], **changes: Any
) -> Path:
    """Draw the answers, of which one headline is measured; return the CSV of its table.

    Args:
        speeds: instances per second by system, 10 for all others. changes: of every record.
    """

    def change(trial: PlannedTrial, round_: int) -> dict[str, Any] | None:
        if trial.settings["experiment"] != HEADLINE:
            return None
        return {"instances_per_s": speeds.get(trial.settings["system"], 10.0) + round_} | changes

    write_measured(ANSWERS, choices, composer, change)
    assert run_draw(ANSWERS, choices) == 0
    return choices.results_dir / f"tables/{ANSWERS}.csv"
