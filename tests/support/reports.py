"""Reports of artefacts with made-up records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.commands import report
from harness.planning.artefacts import Choices, PlannedTrial
from harness.planning.compose import Composer
from tests.support.artefacts import measured, run_draw

ANSWERS = "answers"
MOST_BYTES = 8e6


def page_of(choices: Choices, *names: str) -> str:
    """The report of artefacts that were drawn."""
    out = choices.results_dir / "report.html"
    sheets = [str(choices.results_dir / f"artefacts/{name}.json") for name in names]
    assert report.main([str(out), *sheets, f"--results-dir={choices.results_dir}"]) == 0
    assert out.stat().st_size < MOST_BYTES
    return out.read_text(encoding="utf-8")


def answered(choices: Choices, composer: Composer, speeds: dict[str, float], **more: Any) -> Path:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any] | None:
        if trial.settings["experiment"] != "headline_tree_lstm_inference":
            return None
        return {"instances_per_s": speeds.get(trial.settings["system"], 10.0) + round_} | more

    measured(ANSWERS, choices, composer, change)
    run_draw(ANSWERS, choices)
    return choices.results_dir
