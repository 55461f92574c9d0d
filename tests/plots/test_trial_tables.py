"""Tables and figures of trials that are no quantity against one axis (ED-Batch's)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.planning.artefacts import Choices, PlannedTrial, choices_from, plan_artefact
from harness.planning.compose import Composer
from plots.drawing.style import use_style
from plots.figures import best as figure_of_best
from plots.figures import phases as figure_of_phases
from plots.numbers.artefact import Artefact
from plots.numbers.gather import gather
from plots.numbers.points import measure_of
from plots.numbers.published_rows import read_published_rows
from plots.numbers.table import three_digits
from plots.tables import latencies as table_of_latencies
from plots.tables import moving as table_of_moving
from plots.tables import preparing as table_of_preparing
from plots.tables import subgraphs as table_of_subgraphs
from plots.tables import switches as table_of_switches
from plots.words.trial_cells import find
from tests.support.artefacts import lines_of
from tests.support.made_up_records import Change, write_made_up_records

pytestmark = pytest.mark.slow  # all of them together take seconds


def planned(name: str, choices: Choices, change: Change | None = None) -> Artefact:
    trials = plan_artefact(name, choices, Composer(choices.conf_dir))
    write_made_up_records(trials, choices, change)
    return gather(name, choices, trials)


def test_the_published_pairs_are_the_papers() -> None:
    """The ratios that the paper prints follow from its kernels and kB."""
    published = read_published_rows("edbatch_table2")
    ratios = {
        cell: [
            round((published.value(cell, f"dynet_{part}") or 0)
                  / (published.value(cell, f"pq_{part}") or 1), 2)
            for part in ("kernels", "copied_kb")
        ]
        for cell in published.rows
    }  # fmt: skip
    assert ratios["gru"] == [3.0, 47.57]
    assert ratios["lstm"] == [4.0, 65.88]
    assert ratios["mv"] == [1.0, 1.0]
    assert ratios["tree_lstm_internal"] == [2.33, 48.36]
    assert ratios["tree_lstm_leaf"] == [3.0, 66.0]


def test_subgraphs_show_ours_and_the_papers_with_ratios(choices: Choices) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        is_pq = trial.settings["system"] == "subgraph_pq"
        forward = {"forward": 0.00002 if is_pq else 0.00003}
        counts = {
            "n_copies": 2.0 if is_pq else 6.0,
            "bytes_copied": 1024.0 * (14 if is_pq else 666),
        }
        return {"phases_s": forward, "warnings": ("busy",), **counts}

    artefact = planned("edbatch_table2", choices, change)
    table = table_of_subgraphs.table_of(artefact, read_published_rows("edbatch_table2"))
    shown = [str(cell) for cell in dict(table.rows)["gru"]]
    assert shown[:6] == ["0.0300†", "0.0200†", "1.50†", "0.11", "0.07", "1.54"]
    assert shown[6:12] == ["6", "2", "3.00", "6", "2", "3.00"], "counts are exact: no dagger"
    assert shown[12:] == ["666", "14", "47.57", "666", "14", "47.57"]
    use_style()
    table_of_subgraphs.make(artefact, choices.results_dir)
    rows = lines_of(choices.results_dir / "tables/edbatch_table2.csv")
    paper = [r for r in rows if r["system"] == "paper" and r["quantity"] == "pq_copied_kb"]
    assert {row["cell"]: float(row["value"]) for row in paper}["mv"] == 260


def test_latencies_stand_before_the_papers_and_speed_ups_are_the_firsts(choices: Choices) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        by_python = trial.settings["system"] == "acrobat_gathers"
        return {
            "instances_per_s": 100.0 if by_python else 250.0,
            "phases_s": {"construct": 0.003 if by_python else 0.001},
        }

    choices = replace(choices, scale="paper")
    artefact = planned("acrobat_table7", choices, change)
    table = table_of_latencies.table_of(artefact, "strategies")
    assert len(table.rows) == 12
    first, *rest = dict(table.rows)["BiRNN, hidden 512, batch size 64"]
    per_instance = [float(str(cell)) for cell in rest[1:3]]
    assert [str(first), str(rest[0])] == ["1.00", "3.00"]
    assert per_instance[1] / per_instance[0] == pytest.approx(2.5, rel=0.01)
    assert str(rest[3]).startswith("2.50")
    assert [str(cell) for cell in rest[4:]] == ["13.72", "30.43"], "the paper's"
    use_style()
    table_of_latencies.make(artefact, choices.results_dir)
    rows = lines_of(choices.results_dir / "tables/acrobat_table7_strategies.csv")
    paper = [row for row in rows if row["system"] == "paper, GPU: virtual machine"]
    assert len(paper) == 12
    ratios = {row["system"] for row in rows if row["quantity"] == "speedup"}
    assert ratios == {"acrobat_gathers"}


def test_switches_are_those_of_the_record(choices: Choices) -> None:
    options = {"layout": "pq", "ahead_of_time": False, "pre_gather": True}
    artefact = planned(
        "edbatch_table2_switches", choices, lambda trial, _: {"config": {"system_options": options}}
    )
    table = table_of_switches.table_of(artefact)
    assert len(table.rows) == 6
    assert [str(cell) for cell in table.rows[0][1][:3]] == ["pq", "no", "yes"]


def test_preparing_is_the_compile_time(choices: Choices) -> None:
    artefact = planned("edbatch_layout_time", choices, lambda trial, _: {"compile_s": 0.0025})
    table = table_of_preparing.table_of(artefact, read_published_rows("edbatch_layout_time"))
    assert [str(cell) for cell in dict(table.rows)["lstm"]] == ["2.50", "12.95"]


def test_a_mark_is_the_best_over_batch_sizes_and_merged_systems(choices: Choices) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        fast = trial.settings["system"] == "dynet_depth"
        return {"instances_per_s": 900.0 if fast else float(trial.settings["batch_size"])}

    artefact = planned("edbatch_fig6", choices, change)
    points = figure_of_best.points_at(artefact, "tree_lstm", "dynet", 64.0)
    point, best = figure_of_best.best_of(artefact, points)
    assert point.settings["system"] == "dynet_depth"
    assert best.summary is not None
    assert best.summary.median == 900.0
    use_style()
    figure_of_best.make(artefact, choices.results_dir)
    rows = lines_of(choices.results_dir / "figures/edbatch_fig6.csv")
    marks = {(r["model"], r["shown_as"], r["hidden_size"]) for r in rows}
    assert sum(row["is_best"] == "True" for row in rows) == len(marks)
    chosen = {r["batch_size"] for r in rows if r["is_best"] == "True" and r["system"] == "vertex"}
    assert chosen == {"32"}


def test_a_mark_without_any_number_says_why(choices: Choices) -> None:
    artefact = planned("edbatch_fig6", choices, lambda trial, _: {"status": "oom", "reason": "x"})
    points = figure_of_best.points_at(artefact, "tree_lstm", "vertex", 64.0)
    assert figure_of_best.best_of(artefact, points)[1].status == "oom"
    use_style()
    figure = figure_of_best.draw_best(artefact)
    assert "oom" in {text.get_text() for axes in figure.axes for text in axes.texts}


def test_phases_add_up_to_the_pass(choices: Choices) -> None:
    artefact = planned("edbatch_fig8", choices)
    point = find(artefact, model="tree_lstm", system="vertex")
    assert point is not None
    whole = measure_of(point, "throughput").summary
    assert whole is not None
    parts = figure_of_phases.parts_of(point, artefact.presentation.show["parts"])
    assert list(parts) == ["construct", "schedule", "execution"]
    assert sum(parts.values()) == pytest.approx(1e3 * 32 / whole.median)


def test_scheduling_that_is_not_told_is_not_called_execution(choices: Choices) -> None:
    artefact = planned("edbatch_fig8", choices, lambda trial, _: {"phases_s": {"construct": 0.001}})
    point = find(artefact, model="tree_lstm", system="dynet")
    assert point is not None
    parts = figure_of_phases.parts_of(point, artefact.presentation.show["parts"])
    assert list(parts) == ["construct", "execution_together"]
    use_style()
    figure_of_phases.make(artefact, choices.results_dir)
    assert (choices.results_dir / "figures/edbatch_fig8.pdf").exists()


def test_subgraphs_run_on_the_cpu_wherever_the_rest_does(
    conf_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.planning.admit.has_cuda_device", lambda: True)
    choices = choices_from({"scale": "paper", "device": "cuda", "conf_dir": conf_dir}, {})
    composer = Composer(conf_dir)
    for name, device in (("edbatch_table2", "cpu"), ("edbatch_fig8", "cuda")):
        assert {t.spec.device for t in plan_artefact(name, choices, composer)} == {device}


def test_moving_and_computing_are_parts_of_the_computation(choices: Choices) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        told = _is_profiled(trial)
        phases = {"construct": 0.01, "schedule": 0.01, "forward": 0.05, "backward": 0.15}
        changes: dict[str, Any] = {"phases_s": phases, "moving_share": 0.25 if told else None}
        n = trial.settings["batch_size"]  # a mini-batch takes 0.25 s, and longer where it counts
        seconds = 0.35 if told else 0.25
        return changes | {"instances_per_s": n / seconds, "warnings": ("busy",) if told else ()}

    artefact = planned("cavs_table2", replace(choices, scale="medium"), change)
    published = read_published_rows("cavs_table2")
    table = table_of_moving.table_of(artefact, published)
    n_batches = 8544 / 64
    moving, computing = 0.25 * 0.2 * n_batches, (0.23 - 0.25 * 0.2) * n_batches
    shown = [str(cell) for cell in dict(table.rows)["64"]]
    assert shown[:4] == [f"{three_digits(moving)}\N{DAGGER}", "not told"] * 2
    most = f"\N{LESS-THAN OR EQUAL TO} {three_digits(0.23 * n_batches)}"
    ours = f"{three_digits(computing)}\N{DAGGER}"
    assert shown[4:8] == [ours, most] * 2
    assert shown[8:] == ["0.39", "0.6", "0.21", "0.6", "4", "7.4", "1.3", "3.48"]
    assert [str(cell) for cell in dict(table.rows)["256"][:8]] == ["\N{EN DASH}"] * 8
    assert "mode infer and train" in table.subtitle
    use_style()
    table_of_moving.make(artefact, choices.results_dir)
    rows = lines_of(choices.results_dir / "tables/cavs_table2.csv")
    ours_rows = [r for r in rows if r["system"] == "cavs" and r["batch_size"] == "64"]
    parts = {r["quantity"]: float(r["value"]) for r in ours_rows if r["mode"] == "train"}
    assert parts["moving_s"] + parts["arithmetic_s"] == pytest.approx(parts["computation_s"])


def test_trials_that_tell_what_they_move_are_trials_of_their_own(choices: Choices) -> None:
    """Reading the counter may slow them down: no other table takes their times."""
    composer = Composer(choices.conf_dir)
    own = {t.trial_id for t in plan_artefact("cavs_table2", choices, composer) if _is_profiled(t)}
    other = {t.trial_id for t in plan_artefact("cavs_table1_tree_lstm", choices, composer)}
    assert own
    assert not own & other


def _is_profiled(trial: PlannedTrial) -> bool:
    return bool(trial.spec.system_options.get("profile"))
