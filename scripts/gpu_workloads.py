"""Workloads whose programs and kernels the GPU scripts inspect on machines without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dynbatch.harness.contracts.policy import load_policy
from dynbatch.harness.engine.backends.cuda.backend import Backend
from dynbatch.harness.engine.backends.cuda.memory import PreparedMiniBatch
from dynbatch.harness.engine.backends.cuda.model import KERNELS
from dynbatch.harness.engine.backends.cuda.module import KernelModule
from dynbatch.harness.engine.backends.cuda.program import Phase, read_program
from dynbatch.harness.engine.backends.cuda.words import WordArray, Words
from dynbatch.harness.engine.engine import Engine
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.granularity.vertices import VertexModel
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.overrides import read_settings
from dynbatch.harness.policies.parts.segments import schedule_in_segments
from dynbatch.harness.trials.workload import load_workload

POLICY = "critical_share"


class Unstarted(Backend):
    """CUDA backend that generates programs and kernels, but runs none."""

    @classmethod
    def explain_unavailable(cls, switches: Switches, device: str) -> str | None:
        """Return None: nothing is run, so every device is supported."""
        return None

    def read_phases(self, kernel: str) -> list[Phase]:
        """Return the phases of a kernel's program for the last arranged mini-batch."""
        return read_program(self.modules[kernel], self._mini_batch.programs[KERNELS.index(kernel)])

    @property
    def modules(self) -> Mapping[str, KernelModule]:
        return self._preparation.modules

    def collect_index_arrays(self) -> Mapping[WordArray, Words]:
        """Return the index arrays of the last arranged mini-batch."""
        return dict(zip(self._preparation.places, self._mini_batch.indices, strict=True))

    def count_uploaded_bytes(self) -> int:
        """Return the size of all index arrays and programs of the mini-batch."""
        return sum(array.nbytes for array in self._mini_batch.arrays)

    @property
    def _mini_batch(self) -> PreparedMiniBatch:
        assert self._prepared is not None
        return self._prepared


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
        spec = Composer().resolve_trial(
            {**chosen, **sizes, **n_batches, **read_settings(self.options)}
        )
        workload = load_workload(spec)
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
