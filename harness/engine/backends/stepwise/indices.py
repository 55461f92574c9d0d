"""Indices of a mini-batch on the device: all of them in one copy, which nobody waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from harness.engine.lowering.plan import Slots
from harness.engine.rows.geometry import Index, TypeGeometry


@dataclass(frozen=True, eq=False, slots=True)
class TypeIndices:
    """Of one vertex function.

    pulls, gathers: see TypeGeometry. owner (n_edges,): row of every edge's vertex; owner_in_batch:
    the same from the first row of its batch on. None where there are no edges.
    """

    pulls: Mapping[str, Tensor]
    gathers: Mapping[Slots, Tensor]
    owner: Tensor | None = None
    owner_in_batch: Tensor | None = None


def upload(types: Mapping[int, TypeGeometry], device: torch.device) -> dict[int, TypeIndices]:
    """Bring the indices of all functions to the device."""
    arrays = [array for geometry in types.values() for array in _arrays(geometry)]
    if not arrays:
        return {}
    joined = torch.from_numpy(np.concatenate(arrays, dtype=np.int64))
    if device.type == "cuda":
        joined = joined.pin_memory()
    pieces = iter(torch.split(joined.to(device, non_blocking=True), [len(a) for a in arrays]))
    return {
        type_id: TypeIndices(
            {name: next(pieces) for name in geometry.pulls},
            {slots: next(pieces) for slots in geometry.gathers},
            *(next(pieces) for _ in range(2 if None in geometry.gathers else 0)),
        )
        for type_id, geometry in types.items()
    }


def _arrays(geometry: TypeGeometry) -> list[Index]:
    """In the order of the fields of TypeIndices."""
    found = [*geometry.pulls.values(), *(g.index for g in geometry.gathers.values())]
    if None in geometry.gathers:
        starts = geometry.rows.starts
        n_edges = np.diff(geometry.gathers[None].edge_start)
        first = starts[:-1].astype(np.int64).repeat(np.diff(starts))  # of the batch of each row
        owner = np.arange(geometry.rows.n).repeat(n_edges)
        found += [owner, owner - first.repeat(n_edges)]
    return found
