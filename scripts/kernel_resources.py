"""What every kernel of every model takes of a GPU's processors, compiled here without a GPU.

    BENCH_DATA=... python -m scripts.kernel_resources --minutes 9

Writes the table of docs/gpu_kernels.md. To compile all takes an hour of one core; a call ends once
its time is up, and the next goes on: what stands in the table of a kernel whose text is the same
is kept, and what is not compiled yet says so.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from harness.engine.backends.cuda.module import Module
from harness.engine.backends.cuda.offline import ARCHITECTURES, Resources, resources_of
from harness.values.places import ROOT
from scripts.gpu_workloads import WORKLOADS
from scripts.marked_page import MarkedPage

PAGE = MarkedPage(ROOT / "docs" / "gpu_kernels.md", "kernel_resources")
NOT_YET = "not compiled yet"
HEAD = ("workload", "kernel", "text", "kinds", *ARCHITECTURES)
Compile = Callable[[Module, str], Resources]


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel; text: the beginning of its text's hash."""

    workload: str
    kernel: str
    text: str
    kinds: str
    cells: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        """What has to be the same for cells to be kept."""
        return self.workload, self.kernel, self.text

    @property
    def line(self) -> str:
        """Of the table."""
        return f"| {self.workload} | {self.kernel} | {self.text} | {self.kinds} | " + (
            " | ".join(self.cells) + " |"
        )


def main(arguments: Sequence[str]) -> int:
    """Write the table."""
    parser = argparse.ArgumentParser(description="Compile kernels for GPUs that are not here.")
    parser.add_argument("--minutes", type=float, default=9.0)
    seconds = 60 * parser.parse_args(arguments).minutes
    modules = [
        (workload.name, kernel, module)
        for workload in WORKLOADS
        for backend, _ in workload.arranged(1)
        for kernel, module in backend.modules.items()
        if module.entries
    ]
    rows = begun(modules, rows_of(PAGE.written))
    is_over = partial(_is_over, time.monotonic() + seconds)
    rows = compiled(rows, modules, resources_of, is_over)
    PAGE.write(table(rows))
    return 0


def _is_over(end: float) -> bool:
    return time.monotonic() >= end


def begun(modules: Sequence[tuple[str, str, Module]], known: Sequence[Row]) -> list[Row]:
    """Rows of all kernels with what is known of them."""
    cells = {row.key: row.cells for row in known}
    none = (NOT_YET,) * len(ARCHITECTURES)
    rows = []
    for workload, kernel, module in modules:
        text = hashlib.sha256(module.text.encode()).hexdigest()[:8]
        kept = cells.get((workload, kernel, text), none)
        rows.append(Row(workload, kernel, text, str(len(module.entries)), kept))
    return rows


def compiled(
    rows: Sequence[Row],
    modules: Sequence[tuple[str, str, Module]],
    compile_: Compile,
    is_over: Callable[[], bool],
) -> list[Row]:
    """Fill in what is not there until time is up, an architecture after the other, sm_90 first."""
    found = {(row.workload, row.kernel): list(row.cells) for row in rows}
    for architecture in sorted(ARCHITECTURES, key=lambda name: name != "sm_90"):
        place = list(ARCHITECTURES).index(architecture)
        for workload, kernel, module in modules:
            cells = found[workload, kernel]
            if cells[place] == NOT_YET and not is_over():
                cells[place] = words_of(compile_(module, architecture))
    return [
        Row(row.workload, row.kernel, row.text, row.kinds, tuple(found[row.workload, row.kernel]))
        for row in rows
    ]


def words_of(found: Resources) -> str:
    """Registers, bytes spilled, KiB shared."""
    return f"{found.n_registers}, {found.spilled_bytes}, {-(-found.shared_bytes // 1024)}"


def table(rows: Sequence[Row]) -> str:
    """As Markdown."""
    head = f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}"
    return "\n".join([head, *(row.line for row in rows)])


def rows_of(written: str) -> list[Row]:
    """The rows of a table, nothing where there is none or one of other columns."""
    lines = [line.strip("| ").split(" | ") for line in written.splitlines()]
    if not lines or tuple(lines[0]) != HEAD:
        return []
    return [Row(*cells[:4], tuple(cells[4:])) for cells in lines[2:]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
