"""What a mini-batch left in device memory, as NumPy arrays."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.contracts.model import Weights
from harness.engine.backend import Arrangement
from harness.engine.backends.cuda.arrays import SHARED, BufferOf
from harness.engine.backends.cuda.memory import Memory
from harness.engine.cpu_kernels import loss_kernels
from harness.engine.lowering.plan import Plan, Ref, state_buffer
from harness.vertex.operators import EDGE


@dataclass(frozen=True, slots=True)
class Results:
    """Reads the memory of one mini-batch; waits for what computes it."""

    memory: Memory
    plans: Mapping[int, Plan]
    rows: Arrangement | None

    def read(self, type_id: int, ref: Ref, rows: slice) -> NDArray[np.float32]:
        """Columns of a function's rows; logits that a gradient has replaced are computed back."""
        found = self._numpy(type_id, ref, rows)
        step = self.plans[type_id].overwritten(ref)
        if step is None or self.rows is None or type_id not in self.rows.types:
            return found
        label = self.rows.types[type_id].pulls[step.label][rows]
        others = (self._numpy(type_id, other, rows) for other in (step.loss, step.log_sum))
        return loss_kernels.logits_of(found, label, *others)

    def _numpy(self, type_id: int, ref: Ref, rows: slice) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._values(type_id, ref)[rows].cpu().numpy().copy()
        return found

    def _values(self, type_id: int, ref: Ref) -> Tensor:
        """Columns of all rows of a function, in the order of its batches."""
        geometry = None if self.rows is None else self.rows.types.get(type_id)
        if geometry is None:
            return torch.zeros((0, ref.width))
        plan, columns = self.plans[type_id], slice(ref.start, ref.start + ref.width)
        buffer = plan.buffers[ref.buffer]
        if ref.buffer.is_gathered:
            states = self.memory.buffers[BufferOf(SHARED, state_buffer(ref.buffer.of))]
            index = torch.from_numpy(geometry.gathers[plan.gathered(ref.buffer)].index)
            return states[index.to(states.device)].reshape(-1, buffer.width)[:, columns]
        if not ref.buffer.is_shared:
            n = geometry.n_edges if buffer.domain == EDGE else geometry.rows.n
            return self.memory.buffers[BufferOf(type_id, ref.buffer)][:n, columns]
        matrix = self.memory.buffers[BufferOf(SHARED, ref.buffer)]
        first_rows = geometry.rows.first_row.tolist()
        sizes = np.diff(geometry.rows.starts).tolist()
        pieces = zip(first_rows, sizes, strict=True)
        return torch.cat([matrix[first : first + n, columns] for first, n in pieces])

    def gradients(self, summed: Collection[str]) -> Weights:
        """Dense gradients of what was loaded; summed: parameters that have one on the device."""
        memory = self.memory
        found = {name: np.zeros(shape, dtype=np.float32) for name, shape in memory.shapes.items()}
        for name in summed:
            found[name] += memory.gradients[name].cpu().numpy()
        for type_id, plan in self.plans.items():
            geometry = None if self.rows is None else self.rows.types.get(type_id)
            for node in plan.row_sums() if geometry is not None else ():
                assert geometry is not None
                rows, dy = node.inputs
                values = self._numpy(type_id, plan.refs[dy], slice(None))
                np.add.at(found[node.name], geometry.pulls[plan.nodes[rows].name], values)
        for name, pack in memory.packs.items():
            for part, at in pack.places():
                mine = found[part.parameter][..., part.start : part.start + part.width]
                mine += found[name][..., at : at + part.width]
        return {name: found[name] for name in memory.loaded}
