"""The table of what kernels take: it goes on where it ended, and keeps nothing of other kernels."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from harness.engine.backends.cuda.kinds import RowSumKind
from harness.engine.backends.cuda.module import Entry, Module
from harness.engine.backends.cuda.offline import Resources
from harness.engine.backends.cuda.tiles import Tile
from scripts.kernel_resources import NOT_YET, begun, compiled, rows_of, table

ENTRY = Entry(RowSumKind.__new__(RowSumKind), Tile(1, 1, 1))
MODULES = [
    ("a model", "forward", Module("def run(): 1", (ENTRY,), ())),
    ("a model", "backward", Module("def run(): 2", (ENTRY, ENTRY), ())),
]


def ends_after(n: int) -> Callable[[], bool]:
    calls = count()
    return lambda: next(calls) >= n


def numbered() -> Callable[[Module, str], Resources]:
    calls = count(1)
    return lambda module, architecture: Resources(next(calls), 0, 1025)


def test_it_goes_on_where_it_ended_with_the_h200_first() -> None:
    rows = compiled(begun(MODULES, []), MODULES, numbered(), ends_after(3))
    assert [row.cells for row in rows] == [
        ("3, 0, 2", "1, 0, 2", NOT_YET),
        (NOT_YET, "2, 0, 2", NOT_YET),
    ]
    again = begun(MODULES, rows_of(table(rows)))
    assert again == rows
    done = compiled(again, MODULES, numbered(), ends_after(100))
    assert [row.cells for row in done] == [
        ("3, 0, 2", "1, 0, 2", "2, 0, 2"),
        ("1, 0, 2", "2, 0, 2", "3, 0, 2"),
    ]


def test_a_kernel_of_another_text_is_compiled_anew() -> None:
    rows = compiled(begun(MODULES, []), MODULES, numbered(), ends_after(100))
    changed = [("a model", "forward", Module("def run(): 3", (ENTRY,), ())), MODULES[1]]
    found = begun(changed, rows_of(table(rows)))
    assert found[0].cells == (NOT_YET,) * 3
    assert found[1] == rows[1]


def test_a_page_without_a_table_has_no_rows() -> None:
    assert rows_of("") == []
    assert rows_of("| workload | kernel |\n|---|---|\n| a | b |") == []
