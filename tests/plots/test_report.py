"""The report and the sheets it is made of: answers first, from records, in one file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.commands import report
from harness.planning.artefacts import Choices
from harness.planning.compose import Composer
from plots.writing.report_answers import read_answers
from tests.support.artefacts import FIGURE, TABLE, measured, run_draw
from tests.support.reports import ANSWERS, answered, page_of

pytestmark = pytest.mark.slow  # all of them together take seconds


@pytest.fixture
def page(choices: Choices, composer: Composer) -> str:
    for name in (FIGURE, TABLE):
        measured(name, choices, composer)
        run_draw(name, choices)
    return page_of(choices, FIGURE, TABLE)


def test_the_report_needs_no_other_file(page: str) -> None:
    assert page.count("data:image/png;base64,") == 1
    assert page.count("<table>") == 2
    assert "http" not in page.replace("https://www.w3.org", "")
    assert "<script" not in page
    assert "synthetic" in page
    for words in ("Made-up CPU", "made_up 1.0", "snakemake all", "Titan X"):
        assert words in page


def test_every_artefact_is_found_by_paper_and_its_numbers_are_a_click_away(page: str) -> None:
    for name in (FIGURE, TABLE):
        assert f'<section id="{name}">' in page
        assert page.count(f'href="#{name}"') >= 3, "by paper, by workload, among the records"
    assert page.count("All numbers (CSV)") == 3  # a table for each comparison, and a figure
    assert "notes: how it was measured" in page


def test_without_headlines_there_is_no_answer(page: str) -> None:
    assert "Not measured: no headline is among these artefacts." in page


@pytest.mark.parametrize(
    ("speeds", "sentence"),
    [
        ({"vertex": 300.0, "dynet": 150.0}, "2.00\N{MULTIPLICATION SIGN} the best peer, DyNet"),
        ({"vertex": 150.0, "dynet": 300.0}, "is faster: the engine makes 0.50"),
        ({"vertex": 150.0, "dynet": 150.0}, "cannot be told apart"),
    ],
)
def test_answers_are_what_the_records_say(
    choices: Choices, composer: Composer, speeds: dict[str, float], sentence: str
) -> None:
    folder = answered(choices, composer, speeds)
    with_bars = [one for one in read_answers(folder) if one.bars]
    (one,) = with_bars
    assert sentence in one.sentence
    assert "one round" in one.sentence
    assert [bar.share_percent for bar in one.bars] == sorted(
        (bar.share_percent for bar in one.bars), reverse=True
    )
    assert one.bars[0].share_percent == 100
    page = page_of(choices, ANSWERS)
    assert one.sentence.replace("'", "&#39;") in page
    assert "Not measured: " in page, "all other headlines"


def test_a_failure_of_the_engine_is_no_answer(choices: Choices, composer: Composer) -> None:
    folder = answered(choices, composer, {}, status="crash", reason="made up")
    assert {one.sentence for one in read_answers(folder)} == {"Not measured."}


def test_the_sheet_counts_statuses_and_warnings(choices: Choices, composer: Composer) -> None:
    measured(FIGURE, choices, composer, lambda trial, round_: {"warnings": ("drift",)})
    run_draw(FIGURE, choices)
    sheet = json.loads((choices.results_dir / f"artefacts/{FIGURE}.json").read_text())
    assert sheet["statuses"] == {"ok": sheet["n_records"]}
    assert sheet["warnings"] == {"drift": sheet["n_records"]}
    assert sheet["models"]


def test_kinds_of_machines_stand_side_by_side(
    choices: Choices, composer: Composer, tmp_path: Path
) -> None:
    """Each artefact is one section, with a column for each kind that measured it."""
    folders = []
    for name, artefacts in (("H200-a", (FIGURE, TABLE)), ("A100-b", (TABLE,))):
        there = replace(choices, results_dir=tmp_path / name)
        for artefact in artefacts:
            measured(artefact, there, composer)
            run_draw(artefact, there)
        folders.append(str(there.results_dir))
    out = tmp_path / "report.html"
    assert report.main([str(out), "--kinds", *folders]) == 0
    page = out.read_text(encoding="utf-8")
    assert page.count(f'<section id="{TABLE}">') == page.count(f'<section id="{FIGURE}">') == 1
    of_table = page.partition(f'<section id="{TABLE}">')[2].partition("</section>")[0]
    of_figure = page.partition(f'<section id="{FIGURE}">')[2].partition("</section>")[0]
    assert [of_table.count(f"<h3>{name}</h3>") for name in ("H200-a", "A100-b")] == [1, 1]
    assert [of_figure.count(f"<h3>{name}</h3>") for name in ("H200-a", "A100-b")] == [1, 0]
    assert 'href="A100-b/tables/' in of_table, "its numbers are a click away"
