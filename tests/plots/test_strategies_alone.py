"""Tables in which one thing differs: the policy, or a switch at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.planning.artefacts import Choices, PlannedTrial, plan_artefact
from harness.planning.compose import Composer
from harness.planning.grid import SCALES, expand
from harness.records.stats import Summary
from plots.drawing.style import use_style
from plots.numbers.artefact import Artefact
from plots.numbers.gather import gather
from plots.numbers.points import Measured
from plots.numbers.seeds import SEED, over_seeds
from plots.tables import policies_timed, walks
from plots.words.ceiling_cells import CEILING
from tests.support.artefacts import lines_of
from tests.support.made_up_records import Change, write_made_up_records

POLICIES = ("policies_timed_vertices", "policies_timed_operators")
SWITCHES = "system.options."


def planned(name: str, choices: Choices, composer: Composer, change: Change) -> Artefact:
    chosen = replace(choices, scale="medium")
    trials = plan_artefact(name, chosen, composer)
    write_made_up_records(trials, chosen, change)
    return gather(name, chosen, trials)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", POLICIES)
def test_only_the_policy_differs_within_a_model_and_a_mode(name: str, scale: str) -> None:
    compared = expand(name, scale).settings
    rest: dict[tuple[str, str], set[str]] = {}
    for settings in compared:
        kept = {k: v for k, v in settings.items() if k not in ("policy", SEED)}
        rest.setdefault((settings["model"], settings["mode"]), set()).add(str(sorted(kept.items())))
        assert settings["system"] == "vertex", "the plain engine"
    assert all(len(one) == 1 for one in rest.values())
    for model, mode in rest:
        policies = [s["policy"] for s in compared if (s["model"], s["mode"]) == (model, mode)]
        assert "critical_share" in policies, "whose time the others' is compared with"
        assert len(set(policies)) > 1


def test_a_learned_policy_shows_its_seeds_and_others_their_rounds() -> None:
    one = Measured("ok", Summary(4.0, 3.0, 5.0, 3))
    assert over_seeds([one]) == one
    found = over_seeds([one, Measured("ok", Summary(2.0, 1.0, 9.0, 3), ("busy",)), one])
    assert found.summary is not None
    assert (found.summary.median, found.summary.low, found.summary.high) == (4.0, 2.0, 4.0)
    assert found.warnings == ("busy",)
    assert over_seeds([one, Measured("timeout")]).status == "timeout"
    assert over_seeds([]).summary is None


@pytest.mark.slow
def test_a_row_tells_time_scheduling_batches_and_the_bound(
    choices: Choices, composer: Composer
) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        settings = trial.settings
        slow = {"agenda": 2.0, "critical_share": 1.0}.get(settings["policy"], 4.0)
        slow += settings.get(SEED, 0)
        return {
            "instances_per_s": 32 / (0.010 * slow),
            "n_mini_batches": 2,
            "n_instances": 64,
            "phases_s": {"construct": 0.001, "schedule": 0.002, "forward": 0.004},
            "n_batches": 10.0 * slow,
            "lower_bound": 10.0,
        }

    artefact = planned("policies_timed_vertices", choices, composer, change)
    table = policies_timed.table_of(artefact)
    rows = {header: [str(cell) for cell in cells] for header, cells in table.rows}
    n_timed = len(policies_timed.TIMED)
    agenda, ours = rows["Lattice-LSTM, agenda"], rows["Lattice-LSTM, critical_share"]
    assert agenda[:2] == ["20.0", "2.00"]
    assert agenda[2].startswith("2.00")
    assert agenda[-2:] == ["20", "2.00"]
    assert ours[:3] == ["10.0", "2.00", "1"]
    assert ours[-1] == "1"
    learned = rows["Lattice-LSTM, fsm_sort"]
    assert learned[0] == "60.0 [40.0 to 80.0]", "the median of five seeds, and their range"
    assert learned[-2:] == ["60 [40 to 80]", "6.00 [4.00 to 8.00]"]
    assert rows["Parser, agenda"][n_timed] == "\N{EN DASH}", "no inference of it at this scale"
    use_style()
    policies_timed.make(artefact, choices.results_dir)
    lines = lines_of(choices.results_dir / "tables/policies_timed_vertices.csv")
    seeds = {line["n_seeds"] for line in lines if line["policy"] == "fsm_sort"}
    assert seeds == {"5"}


@pytest.mark.slow
def test_a_walk_tells_what_each_step_is_worth(
    choices: Choices, composer: Composer, tmp_path: Path
) -> None:
    """With times that are products of factors, every way to take a step says its factor."""
    factors = {"fusion": 2.0, "hoisting": 0.8, "policy": 1.5}

    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        ends = trial.settings["system"] == "vertex"
        speed = 1.0
        for option, factor in factors.items():
            said = trial.settings.get(f"{SWITCHES}{option}")
            is_on = ends if said is None else said in (True, "critical_share")
            speed *= factor if is_on else 1.0
        return {"instances_per_s": 1000.0 * speed}

    artefact = planned("switch_walks", choices, composer, change)
    lines = walks.lines_of(artefact)
    table = walks.table_of(artefact, lines)
    walked = [(header, cells) for header, cells in table.rows if header != CEILING]
    starts = [header for header, _ in walked if ":" not in header]
    assert starts == ["Cavs DyNet preset"], "the paper's scale walks from DyNet's, too"
    place = list(walks.COLUMNS).index
    for header, cells in walked:
        option = header.partition(":")[0]
        if ":" not in header:
            assert [cell.text for cell in cells[1:4]] == ["\N{EN DASH}"] * 3
            continue
        for column in ("added_first", "removed_last"):
            ratio = float(cells[place(column)].text.split()[0])
            assert ratio == pytest.approx(factors.get(option, 1.0), rel=0.01), (header, column)
    last = [cells for header, cells in table.rows if "Vertex engine" in header]
    assert len(last) == 1
    for cells in last:
        assert float(cells[place("so_far")].text.split()[0]) == pytest.approx(2.4, rel=0.01)
    assert "missing" not in {cell.text for _, cells in table.rows for cell in cells}
