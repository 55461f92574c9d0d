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

from harness.engine.backends.cuda.kinds import (
    SumKind,
    Tile,
    TileKind,
    count_rows_per_vertex,
    make_cut,
)
from harness.engine.backends.cuda.launching import select_bucket
from harness.engine.backends.cuda.model import KERNELS
from harness.engine.backends.cuda.program import DeviceInstruction, Phase
from harness.engine.backends.cuda.words import WordArray, Words
from harness.values.paths import ROOT
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
class CountedWorkload:
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
    PAGE.write(format_table([count_work(workload) for workload in WORKLOADS]))
    return 0


def count_work(workload: GpuWorkload) -> CountedWorkload:
    """Count the programs of a few mini-batches."""
    replays = 2 if workload.mode == "train" else 1
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
    once_us = sum(estimate_phase_us(phase, arrays) for phase in phases)
    graph_us = once_us + (nodes - len(phases)) * NODE_US + UPLOAD_US + replays * REPLAY_US
    barriers_us = sum(
        estimate_phase_us(phase, arrays) - NODE_US - RAMP_US + BARRIER_US for phase in phases
    )
    n_kernels = sum(1 for of_kernel in by_kernel if of_kernel)
    persistent_us = barriers_us + UPLOAD_US + n_kernels * LAUNCH_US
    flop = sum(_count_flop(instruction, arrays) for phase in phases for instruction in phase)
    written = sum(map(_estimate_bytes, phases))
    return (
        n_batches, len(phases), nodes, replays, 1, backend.count_uploaded_bytes() / 1e3,
        written / 1e6,
        flop / 1e9, graph_us / 1e3, persistent_us / 1e3,
    )  # fmt: skip


def estimate_phase_us(phase: Phase, arrays: Mapping[WordArray, Words]) -> float:
    """Model the time of a phase: its kernel start, and the slower of compute and copies."""
    compute = sum(_estimate_compute_us(instruction, arrays) for instruction in phase)
    return NODE_US + RAMP_US + TRIPS_US + max(compute, _estimate_bytes(phase) / COPIED_BYTES_PER_US)


def _estimate_compute_us(
    instruction: DeviceInstruction, arrays: Mapping[WordArray, Words]
) -> float:
    tiling = Unstarted.tiling
    if isinstance(instruction.kind, TileKind) and instruction.kind.products:
        n = instruction.rows.n * instruction.kind.per_row
        inner = sum(product.k for product in instruction.kind.products)
        tile = tiling.products[tiling.find_variant(n)][1]
        if tile.spread:
            return FEW_ROWS_US * inner * -(-_count_tiles(instruction, tile) // N_RESIDENT)
        return _estimate_waves_us(instruction, tile, 2 * inner)
    return _count_flop(instruction, arrays) / (FLOP_PER_US_AND_PROCESSOR * N_PROCESSORS)


def _count_tiles(instruction: DeviceInstruction, tile: Tile) -> int:
    return make_cut(instruction.kind, tile).count_tiles(
        instruction.rows.n * count_rows_per_vertex(instruction.kind)
    )


def _estimate_waves_us(
    instruction: DeviceInstruction, tile: Tile, flop_per_element: float
) -> float:
    waves = -(-_count_tiles(instruction, tile) // N_PROCESSORS)
    return waves * tile.rows * tile.columns * flop_per_element / FLOP_PER_US_AND_PROCESSOR


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
    """Estimate the bytes that tiles write and read, assumed equal; few phases are memory bound."""
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
    """Return the table as Markdown."""
    lines = [
        "| workload | batches | phases | graph nodes | launches | uploads | uploaded, kB"
        " | moved, MB | GFLOP | graphs, modeled, ms | persistent, modeled, ms |",
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
