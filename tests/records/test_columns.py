"""Columns of the frame: all listed with their meaning, in code and on the page."""

from __future__ import annotations

import re

import harness
from harness.records.columns import COLUMNS
from harness.records.tidy import MEASURED, QUANTITIES, SECTIONS
from harness.values.places import ROOT

MEDIUM = ROOT / "results" / "reference" / "intel-xeon-2cpu-2026-11-25" / "medium"


def test_the_list_has_every_column_of_a_frame_and_no_other() -> None:
    rows = harness.frame(MEDIUM, samples=True)
    options = tuple(f"{section}." for section in SECTIONS)
    found = {str(name) for name in rows if not str(name).startswith(options)}
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    assert found == set(names)
    assert {*MEASURED, *QUANTITIES} <= set(names)


def test_seconds_and_bytes_have_their_unit() -> None:
    units = {"_s": "s", "_ms": "ms", "_bytes": "B", "_mib": "MiB", "_percent": "%"}
    rates = ("_per_s",)
    for column in COLUMNS:
        for suffix, unit in units.items():
            if column.name.endswith(suffix) and not column.name.endswith(rates):
                assert column.unit == unit, column


def test_the_page_shows_the_list() -> None:
    page = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    table = page.partition("| column | unit | meaning |")[2].partition("\n\n")[0]
    shown = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", table, re.MULTILINE)
    assert shown == [tuple(column) for column in COLUMNS]
