"""Count the work of the CUDA backend in a mini-batch, from the programs that a GPU would run.

    BENCH_DATA=... python -m scripts.count_gpu_work

Writes the table of docs/gpu.md; no GPU is needed. kernel_resources.py has the same workloads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import mean

from dynbatch.harness.contracts.policy import load_policy
from dynbatch.harness.engine.backends.cuda.backend import Backend
from dynbatch.harness.engine.backends.cuda.kinds import SumKind, TileKind
from dynbatch.harness.engine.backends.cuda.launching import select_bucket
from dynbatch.harness.engine.backends.cuda.model import KERNELS
from dynbatch.harness.engine.backends.cuda.module import KernelModule
from dynbatch.harness.engine.backends.cuda.program import DeviceInstruction, Phase, read_program
from dynbatch.harness.engine.backends.cuda.words import WordArray, Words
from dynbatch.harness.engine.engine import Engine
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.granularity.vertices import VertexModel
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.overrides import read_settings
from dynbatch.harness.policies.parts.segments import schedule_in_segments
from dynbatch.harness.trials.workload import load_workload
from dynbatch.harness.values.paths import ROOT
from scripts.write_pages import MarkedPage, to_table

N_MINI_BATCHES = 4
POLICY = "critical_share"
PAGE = MarkedPage(ROOT / "docs" / "gpu.md", "count_gpu_work")


class Unstarted(Backend):
    """CUDA backend that generates programs and kernels, but runs none."""

    @classmethod
    def explain_unavailable(cls, switches: Switches, device: str) -> str | None:
        """Return None: nothing is run, so every device is supported."""
        return None

    @property
    def modules(self) -> Mapping[str, KernelModule]:
        return self._preparation.modules

    def count_work(self, n_batches: int, replays: int) -> tuple[float, ...]:
        """Count the work of the last arranged mini-batch; return a number for each column."""
        assert self._prepared is not None
        programs = [read_program(self.modules[name], self.programs[name]) for name in KERNELS]
        phases = [phase for program in programs for phase in program]
        nodes = sum(select_bucket(len(program)) for program in programs if program)
        arrays = dict(zip(self._preparation.places, self._prepared.indices, strict=True))
        flop = sum(_count_flop(instruction, arrays) for phase in phases for instruction in phase)
        moved = sum(map(_estimate_bytes, phases))
        uploaded = sum(array.nbytes for array in self._prepared.arrays)
        return n_batches, len(phases), nodes, replays, 1, uploaded / 1e3, moved / 1e6, flop / 1e9


@dataclass(frozen=True, slots=True)
class GpuWorkload:
    """Model with its dataset at a size of the papers, in mini-batches of 64.

    Attributes:
        options: further overrides, as for `bench`.
    """

    model: str
    dataset: str
    hidden_size: int
    mode: str
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.model}, {self.dataset}, hidden {self.hidden_size}, {self.mode}"

    def arrange_mini_batches(self, n_mini_batches: int) -> Iterator[tuple[Unstarted, int]]:
        """Yield the backend after each mini-batch was arranged, and its number of batches."""
        chosen = {"system": "vertex", "model": self.model, "dataset": self.dataset}
        sizes = {"hidden_size": self.hidden_size, "batch_size": 64, "mode": self.mode}
        n_batches = {"timing.n_mini_batches": n_mini_batches}
        settings = chosen | sizes | n_batches | read_settings(self.options)
        workload = load_workload(Composer().resolve_trial(settings))
        model = VertexModel(workload.model, deduplicate_inputs=False, outputs="stage")
        train = self.mode == "train"
        weights, switches = workload.weights, Switches()
        engine = Engine(
            model.functions, model.output, weights, switches, "cpu", train=train, kind=Unstarted
        )
        for instances in workload.mini_batches:
            mini_batch = model.mini_batch(instances)
            schedule = schedule_in_segments(load_policy(POLICY), mini_batch.graph)
            engine.arrange(mini_batch, schedule)
            backend = engine.backend
            assert isinstance(backend, Unstarted)
            yield backend, schedule.n_batches


WORKLOADS = tuple(
    GpuWorkload(*values)
    for values in (
        ("tree_lstm", "sst", 64, "train"),
        ("tree_lstm", "sst", 256, "train"),
        ("tree_lstm", "sst", 512, "train"),
        ("tree_lstm_2type", "sst", 256, "train"),
        ("tree_lstm_child_sum", "sst", 256, "train"),
        ("tree_gru", "sst", 256, "train"),
        ("tree_fc", "complete_trees", 256, "train"),
        ("mv_rnn", "sst", 64, "train"),
        ("var_lstm", "ptb_dev", 512, "train"),
        ("bilstm", "wikiner_dev", 256, "train"),
        ("bilstm_char", "wikiner_dev", 256, "train"),
        ("parser", "ud_ewt_dev", 200, "train"),
        ("lattice_lstm", "weibo_lattice", 128, "infer"),
        ("lattice_lstm", "weibo_lattice", 128, "train"),
        ("lattice_gru", "weibo_lattice", 128, "infer"),
        ("gated_lattice_lstm", "weibo_lattice", 128, "train"),
        ("seq2seq", "iwslt15_dev", 256, "infer"),
        ("seq2seq", "iwslt15_dev", 256, "train"),
        ("birnn", "xnli_synthetic", 256, "infer"),
        ("birnn", "xnli_synthetic", 256, "train"),
        ("stack_rnn", "xnli_synthetic", 256, "infer"),
        ("nested_rnn", "xnli_synthetic", 256, "infer"),
        ("drnn", "xnli_synthetic", 256, "infer"),
        ("cell", "complete_trees", 256, "infer", ("dataset.options.n_leaves=2",)),
    )
)


# Columns of the table with their formats; moved: read and written by tiles.
WHOLE = ("batches", "phases", "graph nodes", "launches", "uploads", "uploaded, kB")
COLUMNS = {**dict.fromkeys(WHOLE, ".0f"), "moved, MB": ".1f", "GFLOP": ".1f"}


def main() -> None:
    rows = [
        (workload.name, *map(format, count_work(workload), COLUMNS.values()))
        for workload in WORKLOADS
    ]
    PAGE.write(to_table(("workload", *COLUMNS), rows))


def count_work(workload: GpuWorkload) -> list[float]:
    """Count the programs of a few mini-batches; return the mean of each column."""
    replays = 3 if workload.mode == "train" else 1  # forward, backward, update
    rows = [
        backend.count_work(n_batches, replays)
        for backend, n_batches in workload.arrange_mini_batches(N_MINI_BATCHES)
    ]
    return [mean(values) for values in zip(*rows, strict=True)]


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
    tiles = [(part.rows.n, part.kind) for part in phase if isinstance(part.kind, TileKind)]
    return 2.0 * sum(4 * n * k.per_row * k.width * len(k.stores) for n, k in tiles)


if __name__ == "__main__":
    main()
