"""The table of what kinds take: it goes on where it ended, and what is the same is compiled once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from harness.engine.backends.cuda.arrays import GradientOf, ParameterOf
from harness.engine.backends.cuda.kinds import StepKind
from harness.engine.backends.cuda.module import Entry, Module
from harness.engine.backends.cuda.offline import ARCHITECTURES, Resources
from harness.engine.backends.cuda.tiles import Tile
from scripts.kernel_resources import (
    KINDS,
    PAGE,
    KernelKinds,
    compile_all,
    kernels_of,
    read,
    save,
    table,
)


def step(name: str, width: int) -> Entry:
    kind = StepKind(ParameterOf(name), width, 0, GradientOf(name), width, 0, 1, width)
    return Entry(kind, Tile(16, 64, 1))


# Steps of the same size are the same text, whatever the parameter is called.
MODULES = [("one", "update", [step("a", 8), step("b", 8)]), ("two", "update", [step("c", 16)])]


def numbered() -> Callable[[Module, str], Resources]:
    calls = count(1)
    return lambda module, architecture: Resources(next(calls), 0, 1025)


def test_kinds_of_equal_text_are_compiled_once() -> None:
    kernels, texts = kernels_of([*MODULES, ("three", "backward", [])])
    assert [one.workload for one in kernels] == ["one", "two"]
    assert kernels[0].kinds[0] == kernels[0].kinds[1]
    assert len(texts) == 2


def test_it_goes_on_where_it_ended_with_the_h200_first(tmp_path: Path) -> None:
    kernels, texts = kernels_of(MODULES)
    calls, found = count(), read(tmp_path / "none.csv")
    n_left = compile_all(texts, found, numbered(), lambda: next(calls) >= 3, lambda _: None)
    assert n_left == 2 * len(ARCHITECTURES) - 3
    assert [architecture for _, architecture in found] == ["sm_90", "sm_90", "sm_80"]
    save(tmp_path / "found.csv", found)
    again = read(tmp_path / "found.csv")
    assert again == found
    assert compile_all(texts, again, numbered(), lambda: False, lambda _: None) == 0
    assert again.items() >= found.items()


def test_a_row_says_the_most_of_its_kinds_and_what_is_not_there() -> None:
    kernels = [KernelKinds("one", "update", ("x", "y"))]
    found = {("x", "sm_90"): Resources(40, 8, 1025), ("y", "sm_90"): Resources(60, 0, 16)}
    assert table(kernels, found).splitlines()[-1] == (
        "| one | update | 2 | 0 of 2 compiled | 60, 8 (by 1), 2 | 0 of 2 compiled |"
    )


def test_a_file_of_other_columns_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("kind,registers\nx,3\n")
    assert read(tmp_path / "old.csv") == {}


# --- what is committed ---

MOST_REGISTERS = 255  # of a thread
MOST_SPILLED_BYTES = 64
MOST_SHARED_BYTES = 100 * 1024  # so that two programs fit a processor with 228 KiB
