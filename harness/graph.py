"""The typed graph of a mini-batch, as integer arrays (spec 0)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from harness.errors import ScheduleError
from harness.instances import IntArray, int_array

UNBATCHABLE = 0
NO_TYPE = -1


@dataclass(frozen=True, eq=False, slots=True)
class Graph:
    """A directed acyclic graph of typed vertices; arguments come before the vertices that use them.

    types (n,): type of each vertex; type 0 is unbatchable (a batch of its own).
    arg_start (n + 1,), args (m,): vertex v's arguments are args[arg_start[v]:arg_start[v + 1]], by slot.
    type_names: a name for every type id.
    follows (n_types,): the type whose batch forces a batch of this type right behind it
        (ED-Batch's "get" nodes, spec 1.2), NO_TYPE for ordinary types.

    Raises ScheduleError when the arrays are inconsistent or an argument does not come first (a cycle).
    """

    types: IntArray
    arg_start: IntArray
    args: IntArray
    type_names: tuple[str, ...]
    follows: IntArray = field(default_factory=lambda: int_array([]))

    def __post_init__(self) -> None:
        if len(self.follows) == 0:
            object.__setattr__(self, "follows", np.full(len(self.type_names), NO_TYPE))
        for name in ("types", "arg_start", "args", "follows"):
            object.__setattr__(self, name, int_array(getattr(self, name)))
        self._check()

    def _check(self) -> None:
        n = self.n_vertices
        starts = self.arg_start
        if len(starts) != n + 1 or starts[0] != 0 or starts[-1] != len(self.args):
            raise ScheduleError(
                f"arg_start has {len(starts)} entries ending at {starts[-1:]};"
                f" it needs {n + 1}, from 0 to {len(self.args)}"
            )
        if n and (np.any(np.diff(starts) < 0) or self.types.min() < 0):
            raise ScheduleError("arg_start must not decrease and types must not be negative")
        if n and self.types.max() >= self.n_types:
            raise ScheduleError(
                f"type {self.types.max()} has no name; {self.n_types} types are named"
            )
        if len(self.follows) != self.n_types:
            raise ScheduleError("follows must have one entry for each type")
        users = np.repeat(np.arange(n, dtype=np.int32), np.diff(starts))
        late = np.flatnonzero((self.args >= users) | (self.args < 0))
        if len(late):
            user, arg = users[late[0]], self.args[late[0]]
            raise ScheduleError(
                f"vertex {user} uses vertex {arg}, which does not come before it:"
                " the graph has a cycle or is not in topological order"
            )

    @property
    def n_vertices(self) -> int:
        """Number of vertices."""
        return len(self.types)

    @property
    def n_types(self) -> int:
        """Number of type ids, the unbatchable type 0 included."""
        return len(self.type_names)

    def args_of(self, vertex: int) -> IntArray:
        """Arguments of one vertex, by slot."""
        return self.args[self.arg_start[vertex] : self.arg_start[vertex + 1]]


@dataclass(frozen=True, eq=False, slots=True)
class MiniBatch:
    """What a model makes of K instances: their graph and what the vertices read from outside.

    pulls: external inputs by name, one int32 per vertex (n,), -1 where a vertex has none.
    outputs (k,): the vertices whose state the output function reads, in canonical order
        (instances in order, vertices in each instance's own order).
    """

    graph: Graph
    pulls: Mapping[str, IntArray]
    outputs: IntArray
    n_instances: int
