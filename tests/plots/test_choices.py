"""auto against the best fixed choice: by round, and below 0 where auto is faster."""

from __future__ import annotations

from typing import Any

import pytest

from harness.contracts.choice import Candidate, Choice
from harness.planning.artefacts import Choices, PlannedTrial
from harness.planning.compose import Composer
from plots.numbers.gather import gather
from plots.tables import choices as table
from tests.support.artefacts import lines_of, measured, run_draw

SECONDS = {"auto": 1.03, "agenda": 2.0, "critical_share": 1.0}


def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
    policy = str(trial.settings["policy"])
    found: dict[str, Any] = {"instances_per_s": 1 / SECONDS[policy] / (1 + round_)}
    if policy == "auto":
        chosen = Candidate(policy="frontier", granularity="vertex", tried_s=1.0)
        found["choice"] = Choice(candidates=(chosen,), n_mini_batches=1, n_tries=3)
        found["choose_s"] = 1.5
    return found


def test_it_stands_beside_the_best_and_says_what_it_took(
    choices: Choices, composer: Composer
) -> None:
    artefact = gather("auto_choice", choices, measured("auto_choice", choices, composer, change))
    (line,) = table.lines_of(artefact)
    assert table.name_of(line.best) == "critical_share, vertices"
    assert table.taken(line.auto) == "frontier, vertices"
    summary = table.behind(line).summary
    assert summary is not None
    assert summary.median == pytest.approx(3.0)
    assert run_draw("auto_choice", choices) == 0
    rows = lines_of(choices.results_dir / "tables" / "auto_choice.csv")
    assert [row["choose_s"] for row in rows if row["policy"] == "auto"] == ["1.50"]


def test_what_is_missing_is_told(choices: Choices, composer: Composer) -> None:
    trials = measured("auto_choice", choices, composer, lambda *_: None)
    (line,) = table.lines_of(gather("auto_choice", choices, trials))
    assert table.behind(line).status == "missing"
    assert table.taken(line.auto) == ""
