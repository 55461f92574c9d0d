"""Backend that runs each step with PyTorch operators, on CPU or CUDA, without generated code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Weights
from dynbatch.harness.engine.backend import EVERY, Arrangement
from dynbatch.harness.engine.backends.stepwise.kernels import KERNELS
from dynbatch.harness.engine.backends.stepwise.parameters import StepwiseParameters
from dynbatch.harness.engine.backends.stepwise.rows import Bound, Matrix, upload
from dynbatch.harness.engine.backends.stepwise.steps import TypeExecutor
from dynbatch.harness.engine.lowering.plan import (
    OPERATORS_OF_STEPS,
    Abilities,
    BufferName,
    Plan,
    Ref,
    Role,
    name_state_buffer,
)
from dynbatch.harness.engine.rows.fields import Index
from dynbatch.harness.engine.rows.segments import ALL_ROWS, Loss, Run
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.engine.torch_cuda import explain_no_cuda
from dynbatch.harness.engine.torch_parameters import TorchBackend
from dynbatch.harness.values.precision import EXACT
from dynbatch.harness.vertex.shared_products import RowBlock


class Backend(TorchBackend):
    """Backend that compiles plans to closures over torch tensors (see steps.py)."""

    abilities = Abilities(
        frozenset((*OPERATORS_OF_STEPS, *KERNELS, "sum_edges", "spread")), reads_row_blocks=True
    )

    keeps_states = True

    def __init__(self, switches: Switches, device: str, threads: int) -> None:
        super().__init__(switches, device, threads)
        torch.set_num_threads(threads)
        torch.backends.cuda.matmul.allow_tf32 = False
        self._device = torch.device(device)
        self._states: dict[BufferName, Matrix] = {}
        self._executors: dict[int, TypeExecutor] = {}
        self._rows: Arrangement | None = None

    @classmethod
    def explain_unavailable(cls, switches: Switches, device: str) -> str | None:
        """Return the reason why this cannot run here, such as missing CUDA."""
        if switches.profile:
            return "profile=true needs compiled code; use backend=compiled on a CPU"
        if switches.blas == "openblas":
            return "torch uses its own BLAS; use blas=auto"
        if switches.precision != EXACT:
            return f"precision={switches.precision} needs backend=cuda; remove it"
        return explain_no_cuda() if device == "cuda" else None

    def load(self, weights: Weights) -> None:
        """Copy the weights to the device."""
        self._parameters = StepwiseParameters(weights, self._device)

    def view_rows(self, blocks: Iterable[RowBlock]) -> None:
        """Make rows of parameters readable as parameters."""
        self._parameters.view_rows(blocks)

    def compile(self, plans: Mapping[int, Plan]) -> None:
        """Create closures for new plans."""
        for type_id, plan in plans.items():
            if type_id not in self._executors:
                self._parameters.fold(plan.tables)
                self._parameters.pack(plan.packs)
                bound = Bound(plan, self._parameters, self._states, self._device, self.tally)
                self._executors[type_id] = TypeExecutor(bound)

    def arrange(self, rows: Arrangement) -> None:
        """Upload the indices in one copy, and allocate memory."""
        self._rows = rows
        self._parameters.clear()  # gradients of looked-up rows refer to memory that may be freed
        indices, wanted = upload(rows.types, self._device), rows.types.room_wanted.tolist()
        for type_id, geometry in rows.types.items():
            function = rows.types.fields.index_function(type_id)
            self._executors[type_id].bound.bind(geometry, indices[type_id], wanted[function])
        for name, matrix in self._states.items():
            matrix.ensure(rows.n_rows.get(name.of, 0), rows.kept_rows.get(name.of, 0))

    def run_together(self, runs: Sequence[Run]) -> None:
        """Start every step of every batch from Python."""
        for stage, batches in runs:
            for type_id, batch in batches.tolist():
                if batch == ALL_ROWS:
                    self._executors[type_id].run_all(stage)
                else:
                    self._executors[type_id].run_batch(stage, batch)

    def read(self, type_id: int, ref: Ref, rows: slice = EVERY) -> NDArray[np.float32]:
        """Return a NumPy copy."""
        values: NDArray[np.float32] = (
            self._executors[type_id].collect_value(ref)[rows].cpu().numpy()
        )
        return values.copy() if self._device.type == "cpu" else values

    def defer_losses(self, losses: Sequence[Loss]) -> Callable[[], float]:
        """Return a function that reads the sum of the losses, which is computed on the device."""
        if self._device.type == "cpu":
            return super().defer_losses(losses)
        sums = [
            self._executors[type_id].collect_value(ref)[rows].sum() for type_id, ref, rows in losses
        ]
        if not sums:
            return lambda: 0.0
        total = torch.stack(sums).sum()
        return lambda: float(total)

    def read_states(self, state: str, rows: Index) -> NDArray[np.float32]:
        """Return a NumPy copy."""
        index = torch.from_numpy(rows).to(self._device)
        values: NDArray[np.float32] = (
            self._states[name_state_buffer(state)].tensor[index].cpu().numpy()
        )
        return values

    def clear_gradients(self) -> None:
        """Zero the gradients of states; those of parameters are overwritten."""
        self._parameters.clear()
        assert self._rows is not None
        for name, matrix in self._states.items():
            if name.role is Role.GRADIENT:
                matrix.tensor[: self._rows.n_rows.get(name.of, 0)].zero_()

    def gradients(self) -> Weights:
        """Return dense gradients as NumPy arrays."""
        return self._parameters.collect_gradients(self._parameters.written, self._parameters.sparse)

    def update(self, learning_rate: float) -> None:
        """Update dense parameters as a whole, and looked-up tables row by row."""
        own = self._parameters
        own.update_parameters(learning_rate, own.written, own.sparse)

    def read_weights(self) -> Weights:
        """Return copies of the parameters in NumPy."""
        return self._parameters.copy_weights()

    def facts(self) -> dict[str, str]:
        """Return the fixed facts: one call per step, no fusion."""
        return {"backend": "stepwise", "fusion": "false", "loop": "python"}

    def list_versions(self) -> dict[str, str]:
        """Return the version of PyTorch, and its number of threads."""
        return {"torch": torch.__version__, "torch_threads": str(torch.get_num_threads())}
