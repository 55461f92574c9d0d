"""The report: one file, which starts with the answers and has everything that was drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.errors import OutputError
from dynbatch.harness.planning.artifacts import Choices, PlannedTrial
from dynbatch.harness.planning.config import Composer
from dynbatch.plots.report import summarize_answers, write_report
from tests.support.experiments import FIGURE, TABLE, change_systems, run_draw, write_measured
from tests.support.refusals import expect_refusal

pytestmark = pytest.mark.slow  # whole experiments are drawn
ANSWERS, HEADLINE = "answers", "headline_tree_lstm_inference"
MAX_BYTES = 8e6


def build_page(choices: Choices, *names: str) -> str:
    """Return the report of experiments that were drawn."""
    out = choices.results_dir / "report.html"
    write_report(out, choices.results_dir, names)
    assert out.stat().st_size < MAX_BYTES
    return out.read_text(encoding="utf-8")


def draw_made_up(choices: Choices, composer: Composer, *names: str) -> None:
    for name in names:
        write_measured(name, choices, composer)
        assert run_draw(name, choices) == 0


def test_the_report_has_a_section_for_each_experiment(choices: Choices, composer: Composer) -> None:
    draw_made_up(choices, composer, FIGURE, TABLE)
    page = build_page(choices, FIGURE, TABLE)
    assert page.count("data:image/png;base64,") == 1
    assert page.count('class="dataframe numbers"') >= 2, "a table for each comparison"
    assert "http" not in page
    assert "<script" not in page
    for text in ("Made-up CPU", "made_up 1.0", "snakemake all", "Titan X", "(synthetic "):
        assert text in page
    for name in (FIGURE, TABLE):
        assert page.count(f'<section id="{name}">') == 1
        assert page.count(f'href="#{name}"') == 2, "by paper and by model"
    for csv in (f"figures/{FIGURE}", f"tables/{TABLE}_strategies", f"tables/{TABLE}_systems"):
        assert f'href="{csv}.csv"' in page


def test_the_answer_follows_from_the_records(choices: Choices, composer: Composer) -> None:
    """One headline is measured."""
    speeds = {"vertex": 300.0, "dynet": 150.0}

    def change(trial: PlannedTrial, round_: int) -> dict[str, Any] | None:
        if trial.settings["experiment"] != HEADLINE:
            return None
        return {"instances_per_s": speeds.get(trial.settings["system"], 10.0) + round_}

    write_measured(ANSWERS, choices, composer, change)
    assert run_draw(ANSWERS, choices) == 0
    answer = summarize_answers(choices.results_dir / f"tables/{ANSWERS}.csv")
    assert "on 1 of 1 workloads and slower on 0" in answer
    assert "Not measured: " in answer, "all other workloads"
    draw_made_up(choices, composer, TABLE)
    page = build_page(choices, ANSWERS, TABLE)
    assert answer.replace("'", "&#39;") in page
    first, second = (page.index(f'<section id="{name}">') for name in (ANSWERS, TABLE))
    assert first < page.index(answer[:40]) < page.index("data:image/png;base64,") < second


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        ("trees,True,0.5,0.4,0.6\n", "on 0 of 1 workloads and slower on 1; on 0 the"),
        ("trees,True,1.0,0.9,1.1\n", "on 0 of 1 workloads and slower on 0; on 1 the interval"),
        ("trees,True,2.0,,\nwords,True,0.5,,\n", "on 1 of 2 workloads and slower on 1; on 0"),
        ("trees,False,2.0,,\nwords,True,,,\n", "Not measured: trees; words."),
    ],
)
def test_an_answer_counts_clear_intervals(rows: str, answer: str, tmp_path: Path) -> None:
    header = "workload,is_fastest_baseline,speedup,speedup_low,speedup_high\n"
    (tmp_path / "answers.csv").write_text(header + rows)
    assert answer in summarize_answers(tmp_path / "answers.csv")


def test_sheet_has_statuses_models_and_the_machine(choices: Choices, composer: Composer) -> None:
    crash = change_systems({"dynet": {"status": "crash", "reason": "made up"}})
    trials = write_measured(TABLE, choices, composer, crash)
    assert run_draw(TABLE, choices) == 0
    sheet = json.loads((choices.results_dir / f"artifacts/{TABLE}.json").read_text())
    n_crashes = sum(trial.rounds for trial in trials if trial.settings["system"] == "dynet")
    n_ok = sum(trial.rounds for trial in trials) - n_crashes
    assert n_crashes
    assert sheet["statuses"] == {"crash": n_crashes, "ok": n_ok}
    assert sheet["models"] == ["Tree-LSTM (child-sum)"]
    assert sheet["machine"]["cpu"] == "Made-up CPU @ 3 GHz"
    assert sheet["stems"] == [f"tables/{TABLE}_{group}" for group in ("strategies", "systems")]


def test_without_an_experiment_there_is_no_report(tmp_path: Path) -> None:
    with expect_refusal("nothing was drawn", kind=OutputError):
        write_report(tmp_path / "report.html", tmp_path, [])
    assert not list(tmp_path.iterdir())
