"""Pages that say what the code says, and go out of date with it."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.engine.switches import CHOICES, Switches
from harness.planning.grid import experiment_names
from harness.records.record import STATUSES, Record
from harness.records.stats import summarise
from harness.values.places import ROOT
from plots.numbers.points import Measured
from scripts import (
    answer_folders,
    draw_answers,
    draw_artefacts,
    draw_kept_runs,
    draw_second_answers,
    draw_strategies,
)
from scripts.campaign_parts.case import found_classes
from scripts.marked_page import END, MarkedPage

DOCS = ROOT / "docs"


def first_cells(page: str) -> set[str]:
    """What stands in backquotes in the first cells of a page's tables."""
    text = (DOCS / page).read_text(encoding="utf-8")
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_table_of_artefacts_is_that_of_the_yaml_files() -> None:
    found = draw_artefacts.table()
    assert draw_artefacts.PAGE.written == found.strip(), "run python -m scripts.draw_artefacts"
    assert set(experiment_names()) <= first_cells("pipeline.md")


def test_every_field_of_a_record_is_explained_and_no_other() -> None:
    assert first_cells("records.md") == set(Record.model_fields)


def test_every_switch_is_explained() -> None:
    assert first_cells("engine.md") == {"policy", *(item.name for item in fields(Switches))}


@pytest.mark.parametrize("name", CHOICES)
def test_every_value_of_a_switch_is_named(name: str) -> None:
    text = (DOCS / "engine.md").read_text(encoding="utf-8")
    (row,) = (line for line in text.splitlines() if line.startswith(f"| `{name}`"))
    assert set(re.findall(r"`([^`]+)`", row.split(" | ")[1])) == set(CHOICES[name])


def test_every_word_in_place_of_a_number_is_explained() -> None:
    assert set(STATUSES) - {"ok"} <= first_cells("measuring.md")


def test_every_class_of_the_campaign_is_promised_with_its_number_of_cases() -> None:
    text = (DOCS / "faults.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.MULTILINE)
    assert {name: int(n) for name, n in rows} == {n: c.N_CASES for n, c in found_classes().items()}


def test_the_answers_of_the_readme_are_those_of_the_committed_records() -> None:
    found = draw_answers.table()
    assert draw_answers.PAGE.written == found.strip(), "run python -m scripts.draw_answers"
    assert found.count("\n") > 3


def test_the_answers_of_a_second_cpu_are_those_of_its_records() -> None:
    found = draw_answers.table(answer_folders.SECOND_CPU)
    part = draw_second_answers.PAGE.written
    assert part == found.strip(), "run python -m scripts.draw_second_answers"
    assert found.count("\n") > 3


def test_the_strategies_of_the_readme_are_those_of_the_committed_records() -> None:
    found = draw_strategies.table()
    assert draw_strategies.PAGE.written == found.strip(), "run python -m scripts.draw_strategies"
    head, _, *rows = found.splitlines()
    assert {"Cavs", "DyNet", "ED-Batch", "ACRoBat"} <= {cell.strip() for cell in head.split("|")}
    assert rows


@pytest.mark.parametrize("folder", draw_kept_runs.folders(), ids=lambda path: path.parent.name)
def test_the_tables_of_a_kept_run_are_those_of_its_records(folder: Path) -> None:
    found, page = draw_kept_runs.drawn(folder), draw_kept_runs.page_of(folder)
    assert page.written == found.strip(), "run python -m scripts.draw_kept_runs"


def test_a_workload_is_answered_by_the_first_folder_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {
        "new": [("trees", "many")],
        "old": [("words", "all"), ("trees", "many"), ("trees", "few")],
    }
    monkeypatch.setattr(
        answer_folders,
        "answers",
        lambda folder: (found[folder.name], f"of {folder.name}"),
    )
    monkeypatch.setattr(
        answer_folders,
        "answers_of",
        lambda pairs: [SimpleNamespace(task=task, workload=name) for task, name in pairs],
    )
    rows = answer_folders.rows_of(
        [Path("new"), Path("old")], lambda one, sitting: [one.task, one.workload, sitting]
    )
    assert rows == [
        ["trees", "many", "of new"],
        ["trees", "few", "of old"],
        ["words", "all", "of old"],
    ]


@pytest.mark.parametrize(
    ("values", "is_bold"),
    [
        ([1.2, 1.3], True),
        ([0.7, 0.8], True),
        ([1.1, 1.3], False),
        ([0.8, 0.9], False),
        ([0.9, 1.3], False),
        ([1.2], False),
    ],
)
def test_an_answer_is_bold_where_all_of_its_interval_is_beyond_what_runs_differ_by(
    values: list[float], is_bold: bool
) -> None:
    assert draw_answers._gain(Measured("ok", summarise(values))).startswith("**") == is_bold


def test_what_every_row_says_of_its_sitting_has_no_column() -> None:
    columns = ("workload", "scale", "CPU")
    rows = [("trees", "paper", "AMD EPYC"), ("words", "paper", "Intel Xeon")]
    assert answer_folders.markdown(columns, rows).splitlines() == [
        "| workload | CPU |",
        "|---|---|",
        "| trees | AMD EPYC |",
        "| words | Intel Xeon |",
    ]


def test_a_processor_is_named_shortly() -> None:
    names = ("AMD EPYC", "Intel(R) Xeon(R) Processor", "Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz")
    short = ["AMD EPYC", "Intel Xeon", "Intel Core i7-8700 @ 3.20GHz"]
    assert [answer_folders.cpu_words(name) for name in names] == short


def test_a_part_is_written_in_its_place(tmp_path: Path) -> None:
    page = MarkedPage(tmp_path / "page.md", "draw_it")
    page.path.write_text(f"before\n{page.begin}\nold\n{END}after\n")
    page.write("new")
    assert page.written == "new"
    assert page.path.read_text() == f"before\n{page.begin}\nnew\n{END}after\n"
