"""The table of kernel resources: it resumes where it stopped, and compiles equal kinds once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from dynbatch.harness.engine.backends.cuda.kinds import CopyKind, Tile, TileKind, Tiling
from dynbatch.harness.engine.backends.cuda.module import KernelModule, ModuleEntry
from dynbatch.harness.engine.backends.cuda.words import ParameterOf
from scripts.kernel_resources import (
    ARCHITECTURES,
    KINDS,
    PAGE,
    KernelKinds,
    Resources,
    collect_kernels,
    compile_all,
    format_table,
    read,
    save,
)
from tests.support.walked_backend import modules_of


def copy(name: str, width: int) -> ModuleEntry:
    kind = CopyKind(
        ParameterOf(name), width, 0, ParameterOf(f"{name} in a pack"), width, 0, 1, width
    )
    return ModuleEntry(kind, Tile(16, 64, 1))


# Copies of the same size have the same text, for any name of the parameter.
MODULES = [("one", "backward", [copy("a", 8), copy("b", 8)]), ("two", "backward", [copy("c", 16)])]


def numbered() -> Callable[[KernelModule, str], Resources]:
    calls = count(1)
    return lambda module, architecture: Resources(next(calls), 0, 1025)


def test_kinds_of_equal_text_are_compiled_once() -> None:
    kernels, texts = collect_kernels([*MODULES, ("three", "backward", [])])
    assert [one.workload for one in kernels] == ["one", "two"]
    assert kernels[0].kinds[0] == kernels[0].kinds[1]
    assert len(texts) == 2


def test_compilation_resumes_and_starts_with_h200(tmp_path: Path) -> None:
    _, texts = collect_kernels(MODULES)
    calls, found = count(), read(tmp_path / "none.csv")
    n_left = compile_all(texts, found, numbered(), lambda: next(calls) >= 3, lambda _: None)
    assert n_left == 2 * len(ARCHITECTURES) - 3
    assert [architecture for _, architecture in found] == ["sm_90", "sm_90", "sm_80"]
    save(tmp_path / "found.csv", found)
    again = read(tmp_path / "found.csv")
    assert again == found
    assert compile_all(texts, again, numbered(), lambda: False, lambda _: None) == 0
    assert again.items() >= found.items()


def test_row_shows_maximum_of_its_kinds_and_missing_ones() -> None:
    kernels = [KernelKinds("one", "backward", ("x", "y"))]
    found = {("x", "sm_90"): Resources(40, 8, 1025), ("y", "sm_90"): Resources(60, 0, 16)}
    assert format_table(kernels, found).splitlines()[-1] == (
        "| one | backward | 2 | 0 of 2 compiled | 60, 8 (by 1), 2 | 0 of 2 compiled |"
    )


def test_file_with_other_columns_is_rewritten(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("kind,registers\nx,3\n")
    assert read(tmp_path / "old.csv") == {}


# --- committed results ---

MAX_REGISTERS = 255  # per thread
MAX_SPILLED_BYTES = 64
MAX_SHARED_BYTES = 100 * 1024  # two programs fit a processor with 228 KiB


def test_every_kind_is_within_its_budget() -> None:
    found = read(KINDS)
    assert found
    for key, one in found.items():
        assert 0 < one.n_registers <= MAX_REGISTERS, key
        assert one.spilled_bytes <= MAX_SPILLED_BYTES, key
        assert one.shared_bytes <= MAX_SHARED_BYTES, key


@pytest.mark.parametrize("hidden_size", [64, 256, 512])
def test_kinds_of_the_headline_are_compiled_as_they_are_written_now(hidden_size: int) -> None:
    """All kinds are in the file; if not, run python -m scripts.kernel_resources.

    On an H200, no kind for many rows spills registers.
    """
    modules = modules_of(hidden_size)
    kernels, _ = collect_kernels(("", kernel, module.entries) for kernel, module in modules.items())
    found = read(KINDS)
    missing = {kind for one in kernels for kind in one.kinds if (kind, "sm_90") not in found}
    assert not missing
    for one in kernels:
        for kind, entry in zip(one.kinds, modules[one.kernel].entries, strict=True):
            if isinstance(entry.kind, TileKind) and entry.tile == Tiling().products[-1][1]:
                assert found[kind, "sm_90"].spilled_bytes == 0, (one.kernel, kind)


def test_rows_of_the_page_are_as_the_file_says() -> None:
    modules = modules_of(256)
    name = "tree_lstm, sst, hidden 256, train"
    kernels, _ = collect_kernels(
        (name, kernel, module.entries) for kernel, module in modules.items()
    )
    assert set(format_table(kernels, read(KINDS)).splitlines()) <= set(PAGE.written.splitlines())
