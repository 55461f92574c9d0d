"""What the CUDA backend does in a mini-batch, counted, and how long that takes, modelled.

    BENCH_DATA=... python -m scripts.model_gpu

Writes the table of docs/gpu.md. Phases, launches, uploads and arithmetic are exact: programs are
written here as they are there. The time is a model on paper, with the constants below, to be held
against what a GPU measures; nothing here has run on one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from harness.contracts.policy import load_policy
from harness.engine.backends.cuda.arrays import WordArray, Words
from harness.engine.backends.cuda.backend import Backend
from harness.engine.backends.cuda.kinds import SumKind, TileKind
from harness.engine.backends.cuda.launching import bucket_of
from harness.engine.backends.cuda.model import KERNELS
from harness.engine.backends.cuda.preparation import Prepared
from harness.engine.backends.cuda.program import Instruction, Phase, read_program
from harness.engine.backends.cuda.tiles import Tile, cut_of, rows_per_vertex
from harness.engine.engine import Engine
from harness.engine.switches import Switches
from harness.granularity.vertices import VertexModel
from harness.planning.compose import Composer
from harness.planning.resolve import spec_of
from harness.policies.parts.rounds import schedule_in_rounds
from harness.trials.spec import TrialSpec
from harness.trials.workload import load_workload
from harness.values.places import ROOT
from scripts.marked_page import MarkedPage

# Assumed of an H200; `make gpu` measures the first two.
NODE_US = 1.25  # between two kernels of a graph
COPIED_BYTES_PER_US = 0.8 * 4.8e6
RAMP_US = 1.0  # until a kernel's programs run
TRIPS_US = 1.2  # loads of a phase that wait for one another: instruction, index, row
FLOP_PER_US_AND_PROCESSOR = 0.55 * 67e6 / 132  # exact float32: no tensor cores
N_PROCESSORS = 132
N_RESIDENT = 2 * N_PROCESSORS  # programs at a time
FEW_ROWS_US = 0.35 / 128  # of a product of few rows, for each element of the inner dimension
UPLOAD_US, REPLAY_US = 8.0, 12.0
POLICY = "critical_share"
N_MINI_BATCHES = 4

PAGE = MarkedPage(ROOT / "docs" / "gpu.md", "model_gpu")
WORKLOADS = (
    ("tree_lstm", "sst", 256, "train"),
    ("tree_lstm", "sst", 512, "train"),
    ("tree_gru", "sst", 256, "train"),
    ("tree_fc", "complete_trees", 256, "train"),
    ("mv_rnn", "sst", 64, "train"),
    ("var_lstm", "ptb_dev", 512, "train"),
    ("bilstm", "wikiner_dev", 256, "train"),
    ("parser", "ud_ewt_dev", 200, "train"),
    ("lattice_lstm", "weibo_lattice", 128, "infer"),
    ("lattice_gru", "weibo_lattice", 128, "infer"),
    ("seq2seq", "iwslt15_dev", 256, "infer"),
)


class Unstarted(Backend):
    """Writes programs, and starts none."""

    @classmethod
    def why_not(cls, switches: Switches, device: str) -> str | None:
        """It runs nowhere, and so anywhere."""
        return None

    def phases(self, kernel: str) -> list[Phase]:
        """Of one kernel, of the mini-batch that was arranged last."""
        module = self._preparation.modules[kernel]
        return read_program(module, self._mini_batch.programs[KERNELS.index(kernel)])

    def words(self) -> Mapping[WordArray, Words]:
        """Indices of the last mini-batch."""
        return dict(zip(self._preparation.places, self._mini_batch.indices, strict=True))

    def uploaded_bytes(self) -> int:
        """Of indices and programs."""
        return sum(words.nbytes for words in self._mini_batch.arrays)

    @property
    def _mini_batch(self) -> Prepared:
        assert self._prepared is not None
        return self._prepared


@dataclass(frozen=True, slots=True)
class Counted:
    """Of one workload, the mean of its mini-batches."""

    name: str
    batches: float
    phases: float
    graph_nodes: float
    uploaded_kb: float
    gflop: float
    modelled_ms: float


def main() -> int:
    """Write the table."""
    PAGE.write(table([counted(*workload) for workload in WORKLOADS]))
    return 0


def counted(model: str, dataset: str, hidden_size: int, mode: str) -> Counted:
    """Programs of a few mini-batches of 64."""
    sizes = [f"hidden_size={hidden_size}", "batch_size=64", f"mode={mode}"]
    overrides = ["system=vertex", f"model={model}", f"dataset={dataset}", *sizes]
    spec = spec_of(Composer().compose([*overrides, f"timing.n_mini_batches={N_MINI_BATCHES}"]))
    found = list(_mini_batches(spec))
    name = f"{model}, {dataset}, hidden {hidden_size}, {mode}"
    means = [mean(values) for values in zip(*found, strict=True)]
    return Counted(name, *means)


def _mini_batches(spec: TrialSpec) -> Iterator[tuple[float, ...]]:
    workload = load_workload(spec)
    model = VertexModel(workload.model, share_equal_inputs=False, outputs="stage")
    train = spec.mode == "train"
    outputs = [] if model.output is None else [model.output]
    switches, weights = Switches(), workload.weights
    engine = Engine(model.functions, outputs, weights, switches, "cpu", train=train, kind=Unstarted)
    for instances in workload.mini_batches:
        mini_batch = model.mini_batch(instances)
        schedule = schedule_in_rounds(load_policy(POLICY), mini_batch.graph)
        engine.arrange(mini_batch, schedule)
        backend = engine.backend
        assert isinstance(backend, Unstarted)
        by_kernel = [backend.phases(kernel) for kernel in KERNELS]
        phases = [phase for of_kernel in by_kernel for phase in of_kernel]
        nodes = sum(bucket_of(len(of_kernel)) for of_kernel in by_kernel if of_kernel)
        replays = 1 + 2 * train
        words = backend.words()
        time_us = sum(phase_us(phase, words) for phase in phases) + (nodes - len(phases)) * NODE_US
        time_us += UPLOAD_US + replays * REPLAY_US
        flop = sum(_flop(one, words) for phase in phases for one in phase)
        yield (
            schedule.n_batches, len(phases), nodes, backend.uploaded_bytes() / 1e3, flop / 1e9,
            time_us / 1e3,
        )  # fmt: skip


def phase_us(phase: Phase, words: Mapping[WordArray, Words]) -> float:
    """Of one phase: its kernel's start, and its slowest part."""
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
    """Of products; a gradient sums the rows of all functions that add to it."""
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
    """Written by tiles, and as much read again: what few phases are bound by."""
    written = 0.0
    for one in phase:
        if isinstance(one.kind, TileKind):
            written += 4 * one.rows.n * one.kind.per_row * one.kind.width * len(one.kind.stores)
    return 2 * written


def table(rows: Sequence[Counted]) -> str:
    """The table as Markdown."""
    lines = [
        "| workload | batches | phases | graph nodes | uploaded, kB | GFLOP | modelled, ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.name} | {row.batches:.0f} | {row.phases:.0f} | {row.graph_nodes:.0f}"
            f" | {row.uploaded_kb:.0f} | {row.gflop:.1f} | {row.modelled_ms:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
