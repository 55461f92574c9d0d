"""Count the work of the CUDA backend in a mini-batch, and model its time.

    BENCH_DATA=... python -m scripts.model_gpu

Writes the table of docs/gpu.md. Phases, launches, uploads and arithmetic are exact, because the
programs are those that a GPU would run. Times come from an analytical model with the constants
below, which is to be compared with measurements; nothing here has run on a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from harness.engine.backends.cuda.kinds import SumKind, Tile, TileKind, cut_of, rows_per_vertex
from harness.engine.backends.cuda.launching import bucket_of
from harness.engine.backends.cuda.model import KERNELS
from harness.engine.backends.cuda.program import Instruction, Phase
from harness.engine.backends.cuda.words import WordArray, Words
from harness.values.places import ROOT
from scripts.gpu_workloads import WORKLOADS, GpuWorkload, Unstarted
from scripts.write_pages import MarkedPage

# Assumptions for an H200; `make gpu` measures the first two.
NODE_US = 1.25  # between two kernels of a graph
COPIED_BYTES_PER_US = 0.8 * 4.8e6
RAMP_US = 1.0  # from the start of a kernel until its programs run
TRIPS_US = 1.2  # dependent loads of a phase: instruction, index, row
FLOP_PER_US_AND_PROCESSOR = 0.55 * 67e6 / 132  # exact float32: no tensor cores
N_PROCESSORS = 132
N_RESIDENT = 2 * N_PROCESSORS  # programs at a time
FEW_ROWS_US = 0.35 / 128  # of a matmul with few rows, per element of the inner dimension
UPLOAD_US, REPLAY_US = 8.0, 12.0
BARRIER_US = 1.5  # between phases of one launch
LAUNCH_US = 20.0  # of a kernel from Python, with its barrier's counter
N_MINI_BATCHES = 4

PAGE = MarkedPage(ROOT / "docs" / "gpu.md", "model_gpu")


@dataclass(frozen=True, slots=True)
class Counted:
    """Means over the mini-batches of a workload.

    Attributes:
        moved_mb: megabytes read and written by tiles.
        graph_ms: modeled time with CUDA graphs.
        persistent_ms: modeled time with persistent kernels.
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
    graph_ms: float
    persistent_ms: float


def main() -> int:
    """Write the table."""
    PAGE.write(table([counted(workload) for workload in WORKLOADS]))
    return 0


def counted(workload: GpuWorkload) -> Counted:
    """Count the programs of a few mini-batches."""
    replays = 2 if workload.mode == "train" else 1
    found = [
        _mini_batch(backend, n_batches, replays)
        for backend, n_batches in workload.arranged(N_MINI_BATCHES)
    ]
    return Counted(workload.name, *(mean(values) for values in zip(*found, strict=True)))


def _mini_batch(backend: Unstarted, n_batches: int, replays: int) -> tuple[float, ...]:
    by_kernel = [backend.phases(kernel) for kernel in KERNELS]
    phases = [phase for of_kernel in by_kernel for phase in of_kernel]
    nodes = sum(bucket_of(len(of_kernel)) for of_kernel in by_kernel if of_kernel)
    words = backend.words()
    once_us = sum(phase_us(phase, words) for phase in phases)
    graph_us = once_us + (nodes - len(phases)) * NODE_US + UPLOAD_US + replays * REPLAY_US
    barriers_us = sum(phase_us(phase, words) - NODE_US - RAMP_US + BARRIER_US for phase in phases)
    n_kernels = sum(1 for of_kernel in by_kernel if of_kernel)
    persistent_us = barriers_us + UPLOAD_US + n_kernels * LAUNCH_US
    flop = sum(_flop(one, words) for phase in phases for one in phase)
    written = sum(map(_bytes, phases))
    return (
        n_batches, len(phases), nodes, replays, 1, backend.uploaded_bytes() / 1e3, written / 1e6,
        flop / 1e9, graph_us / 1e3, persistent_us / 1e3,
    )  # fmt: skip


def phase_us(phase: Phase, words: Mapping[WordArray, Words]) -> float:
    """Model the time of a phase: its kernel start, and the slower of compute and copies."""
    compute = sum(_compute_us(one, words) for one in phase)
    return NODE_US + RAMP_US + TRIPS_US + max(compute, _bytes(phase) / COPIED_BYTES_PER_US)


def _compute_us(one: Instruction, words: Mapping[WordArray, Words]) -> float:
    tiling = Unstarted.tiling
    if isinstance(one.kind, TileKind) and one.kind.products:
        n = one.rows.n * one.kind.per_row
        inner = sum(product.k for product in one.kind.products)
        tile = tiling.products[tiling.variant(n)][1]
        if tile.spread:
            return FEW_ROWS_US * inner * -(-_n_tiles(one, tile) // N_RESIDENT)
        return _waves_us(one, tile, 2 * inner)
    return _flop(one, words) / (FLOP_PER_US_AND_PROCESSOR * N_PROCESSORS)


def _n_tiles(one: Instruction, tile: Tile) -> int:
    return cut_of(one.kind, tile).n_tiles(one.rows.n * rows_per_vertex(one.kind))


def _waves_us(one: Instruction, tile: Tile, flop_per_element: float) -> float:
    waves = -(-_n_tiles(one, tile) // N_PROCESSORS)
    return waves * tile.rows * tile.columns * flop_per_element / FLOP_PER_US_AND_PROCESSOR


def _flop(one: Instruction, words: Mapping[WordArray, Words]) -> float:
    """Count the operations of matmuls; gradients sum the rows of all functions that add to them."""
    kind = one.kind
    if isinstance(kind, TileKind):
        n = one.rows.n * kind.per_row
        return float(sum(2 * n * product.k * kind.width for product in kind.products))
    if isinstance(kind, SumKind) and kind.height:
        counts = (
            (int(words[s.count][0]) if s.count else one.rows.n) * s.per_row for s in kind.summands
        )
        return 2.0 * kind.height * kind.width * sum(counts)
    return 0.0


def _bytes(phase: Phase) -> float:
    """Estimate the bytes that tiles write and read, assumed equal; few phases are memory bound."""
    written = 0.0
    for one in phase:
        if isinstance(one.kind, TileKind):
            written += 4 * one.rows.n * one.kind.per_row * one.kind.width * len(one.kind.stores)
    return 2 * written


def table(rows: Sequence[Counted]) -> str:
    """Return the table as Markdown."""
    lines = [
        "| workload | batches | phases | graph nodes | launches | uploads | uploaded, kB"
        " | moved, MB | GFLOP | graphs, modelled, ms | persistent, modelled, ms |",
        f"|{'---|' * 11}",
    ]
    for row in rows:
        lines.append(
            f"| {row.name} | {row.batches:.0f} | {row.phases:.0f} | {row.graph_nodes:.0f}"
            f" | {row.launches:.0f} | {row.uploads:.0f} | {row.uploaded_kb:.0f}"
            f" | {row.moved_mb:.1f} | {row.gflop:.1f} | {row.graph_ms:.2f}"
            f" | {row.persistent_ms:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
