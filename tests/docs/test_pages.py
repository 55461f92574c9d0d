"""Pages agree with the code and the committed records that they describe."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from dynbatch.harness.engine.switches import CHOICES, Switches
from dynbatch.harness.records.record import Record, Status
from dynbatch.harness.values.paths import ROOT
from scripts import write_results
from scripts.write_pages import END, MarkedPage

DOCS = ROOT / "docs"
MAX_WORDS, MAX_ROWS = 900, 8  # of README.md, and of its table


def read_first_cells(page: str) -> set[str]:
    """Return the names in backquotes in the first cells of a page's tables."""
    text = (DOCS / page).read_text(encoding="utf-8")
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_every_field_of_a_record_is_explained() -> None:
    assert set(Record.model_fields) <= read_first_cells("records.md")


def test_every_switch_is_explained() -> None:
    assert read_first_cells("engine.md") == {"policy", *(item.name for item in fields(Switches))}


@pytest.mark.parametrize("name", CHOICES)
def test_every_value_of_a_switch_is_named(name: str) -> None:
    text = (DOCS / "engine.md").read_text(encoding="utf-8")
    (row,) = (line for line in text.splitlines() if line.startswith(f"| `{name}`"))
    assert set(re.findall(r"`([^`]+)`", row.split(" | ")[1])) == set(CHOICES[name])


def test_every_status_is_explained() -> None:
    assert set(get_args(Status)) - {"ok"} <= read_first_cells("measuring.md")


def test_every_test_of_the_campaign_is_promised() -> None:
    tests = {path.stem for path in (ROOT / "tests" / "campaign").glob("test_*.py")}
    assert read_first_cells("faults.md") == tests


@pytest.mark.slow
def test_results_on_pages_are_those_of_the_committed_records() -> None:
    for page, part in write_results.build_parts().items():
        assert page.written == part.strip(), "run python -m scripts.write_results"


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\|.*\n\|[ :|-]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert len([word for word in text.split() if re.search(r"\w", word)]) <= MAX_WORDS
    assert not re.findall(r"^[A-Z]{4,}\d*$", text, re.MULTILINE), "a placeholder"
    assert len(tables) == 1
    assert tables[0].count("\n") <= MAX_ROWS


def test_a_part_is_written_between_its_marks(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    page, other = (MarkedPage(path, "write_it", part) for part in ("first", "second"))
    text = f"before\n{page.begin}\nold\n{END}between\n{other.begin}\nkept\n{END}after\n"
    path.write_text(text)
    page.write("new")
    assert (page.written, other.written) == ("new", "kept")
    assert path.read_text().startswith("before\n")
    assert path.read_text().endswith("after\n")
