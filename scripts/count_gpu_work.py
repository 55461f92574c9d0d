"""Count the work of the CUDA backend in a mini-batch, from the programs that a GPU would run.

    BENCH_DATA=... python -m scripts.count_gpu_work

Writes the table of docs/gpu.md; no GPU is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from dynbatch.harness.engine.backends.cuda.kinds import SumKind, TileKind
from dynbatch.harness.engine.backends.cuda.launching import select_bucket
from dynbatch.harness.engine.backends.cuda.model import KERNELS
from dynbatch.harness.engine.backends.cuda.program import DeviceInstruction, Phase
from dynbatch.harness.engine.backends.cuda.words import WordArray, Words
from dynbatch.harness.values.paths import ROOT
from scripts.gpu_workloads import WORKLOADS, GpuWorkload, Unstarted
from scripts.write_pages import MarkedPage

N_MINI_BATCHES = 4
PAGE = MarkedPage(ROOT / "docs" / "gpu.md", "count_gpu_work")


@dataclass(frozen=True, slots=True)
class CountedWorkload:
    """Means over the mini-batches of a workload.

    Attributes:
        moved_mb: megabytes read and written by tiles.
    """

    name: str
    batches: float
    phases: float
    graph_nodes: float
    launches: float
    uploads: float
    uploaded_kb: float
    moved_mb: float
    gflop: float


def main() -> int:
    PAGE.write(format_table([count_work(workload) for workload in WORKLOADS]))
    return 0


def count_work(workload: GpuWorkload) -> CountedWorkload:
    """Count the programs of a few mini-batches."""
    replays = 3 if workload.mode == "train" else 1  # forward, backward, update
    rows = [
        _count_mini_batch(backend, n_batches, replays)
        for backend, n_batches in workload.arrange_mini_batches(N_MINI_BATCHES)
    ]
    return CountedWorkload(workload.name, *(mean(values) for values in zip(*rows, strict=True)))


def _count_mini_batch(backend: Unstarted, n_batches: int, replays: int) -> tuple[float, ...]:
    by_kernel = [backend.read_phases(kernel) for kernel in KERNELS]
    phases = [phase for of_kernel in by_kernel for phase in of_kernel]
    nodes = sum(select_bucket(len(of_kernel)) for of_kernel in by_kernel if of_kernel)
    arrays = backend.collect_index_arrays()
    flop = sum(_count_flop(instruction, arrays) for phase in phases for instruction in phase)
    moved = sum(map(_estimate_bytes, phases))
    uploaded = backend.count_uploaded_bytes()
    return n_batches, len(phases), nodes, replays, 1, uploaded / 1e3, moved / 1e6, flop / 1e9


def _count_flop(instruction: DeviceInstruction, arrays: Mapping[WordArray, Words]) -> float:
    """Count the operations of matmuls; gradients sum the rows of all functions that add to them."""
    kind = instruction.kind
    if isinstance(kind, TileKind):
        n = instruction.rows.n * kind.per_row
        return float(sum(2 * n * product.k * kind.width for product in kind.products))
    if isinstance(kind, SumKind) and kind.height:
        counts = (
            (int(arrays[s.count][0]) if s.count else instruction.rows.n) * s.per_row
            for s in kind.summands
        )
        return 2.0 * kind.height * kind.width * sum(counts)
    return 0.0


def _estimate_bytes(phase: Phase) -> float:
    """Estimate the bytes that tiles write and read, which are assumed to be equal."""
    written = 0.0
    for instruction in phase:
        if isinstance(instruction.kind, TileKind):
            written += (
                4
                * instruction.rows.n
                * instruction.kind.per_row
                * instruction.kind.width
                * len(instruction.kind.stores)
            )
    return 2 * written


def format_table(rows: Sequence[CountedWorkload]) -> str:
    lines = [
        "| workload | batches | phases | graph nodes | launches | uploads | uploaded, kB"
        " | moved, MB | GFLOP |",
        f"|{'---|' * 9}",
    ]
    for row in rows:
        lines.append(
            f"| {row.name} | {row.batches:.0f} | {row.phases:.0f} | {row.graph_nodes:.0f}"
            f" | {row.launches:.0f} | {row.uploads:.0f} | {row.uploaded_kb:.0f}"
            f" | {row.moved_mb:.1f} | {row.gflop:.1f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
