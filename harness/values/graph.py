"""Typed computation graph of a mini-batch as integer arrays, the input of every policy."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.values.arrays import IntArray, as_int_array, convert_attributes

UNBATCHABLE = 0
NO_TYPE = -1


@dataclass(frozen=True, eq=False, slots=True)
class Graph:
    """Directed acyclic graph of typed vertices; arguments precede the vertices that use them.

    Attributes:
        types: (n,) type of each vertex; type 0 is unbatchable (each vertex is a batch).
        arg_start: (n + 1,) start of each vertex's arguments in `args`: those of vertex v, by slot,
            are args[arg_start[v]:arg_start[v + 1]].
        args: (m,) arguments of all vertices.
        type_names: Name of each type id.
        follows: (n_types,) type whose batch must be followed directly by a batch of this type
            (ED-Batch's "get" nodes, one for each output of a block), or NO_TYPE. A vertex of such a
            type has one argument, which has the type it follows.
        cheap: (n_types,) types that the agenda policy prefers on ties (DyNet's elementwise
            operators: dynet/exec.cc); none by default.
        segments: (n,) graph segment of each vertex, from 0; a segment is evaluated before the next
            one is known. None if the graph has a single segment.
        phases: (n,) program phase of each vertex, from 0, if a program recorded the graph.
        depths: (n,) inline depth of each vertex in its program phase, from 0; given together with
            `phases`. Within a segment, arguments have a smaller (phase, depth), which no vertex
            that follows another could have.

    Raises:
        ScheduleError: The arrays are inconsistent, an argument does not precede its vertex (a
            cycle) or belongs to a later segment, a vertex is not in the segment of the one it
            follows, or has depths and follows another, or depths decrease.
    """

    types: IntArray
    arg_start: IntArray
    args: IntArray
    type_names: tuple[str, ...]
    follows: IntArray = field(default_factory=lambda: as_int_array([]))
    cheap: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    segments: IntArray | None = None
    phases: IntArray | None = None
    depths: IntArray | None = None

    def __post_init__(self) -> None:
        take = object.__setattr__
        convert_attributes(self, "types", "arg_start", "args")
        n_types = self.n_types
        no_follows = len(self.follows) == 0
        take(
            self,
            "follows",
            _build_no_follows(n_types) if no_follows else as_int_array(self.follows),
        )
        take(
            self, "cheap", _to_flags(self.cheap) if len(self.cheap) else _build_none_cheap(n_types)
        )
        given = ("segments", "phases", "depths")
        convert_attributes(self, *(name for name in given if getattr(self, name) is not None))
        self._check()
        self._check_follows()

    @classmethod
    def from_valid_arrays(
        cls,
        types: IntArray,
        arg_start: IntArray,
        args: IntArray,
        type_names: tuple[str, ...],
        segments: IntArray | None = None,
        phases: IntArray | None = None,
        depths: IntArray | None = None,
        follows: IntArray | None = None,
        cheap: NDArray[np.bool_] | None = None,
    ) -> Graph:
        """Build a graph from int32 arrays that the caller guarantees to be valid.

        The arrays become read-only. By default no type follows another, and none is cheap.
        """
        n_types = len(type_names)
        made, take = object.__new__(cls), object.__setattr__
        take(made, "types", types)
        take(made, "arg_start", arg_start)
        take(made, "args", args)
        take(made, "segments", segments)
        take(made, "phases", phases)
        take(made, "depths", depths)
        take(made, "follows", _build_no_follows(n_types) if follows is None else follows)
        take(made, "cheap", _build_none_cheap(n_types) if cheap is None else cheap)
        for array in (types, arg_start, args, segments, phases, depths):
            if array is not None:
                array.setflags(write=False)
        take(made, "type_names", type_names)
        return made

    def _check(self) -> None:
        # This runs in the construct phase of every mini-batch: use few passes over the arrays, and
        # build messages only for errors.
        n = self.n_vertices
        starts = self.arg_start
        if len(starts) != n + 1 or starts[0] != 0 or starts[-1] != len(self.args):
            raise ScheduleError(
                f"arg_start has {len(starts)} entries ending at {starts[-1:]};"
                f" it needs {n + 1}, from 0 to {len(self.args)}"
            )
        n_args = starts[1:] - starts[:-1]
        if n and np.minimum.reduce(n_args) < 0:
            raise ScheduleError("arg_start must not decrease")
        # Viewed as unsigned numbers, negative ones are too large.
        if n and np.maximum.reduce(self.types.view(np.uint32)) >= self.n_types:
            if self.types.min() < 0:
                raise ScheduleError(f"type {self.types.min()} found; types must not be negative")
            raise ScheduleError(
                f"type {self.types.max()} has no name; {self.n_types} types are named"
            )
        users = np.arange(n, dtype=np.int32).repeat(n_args)
        if np.logical_or.reduce(self.args.view(np.uint32) >= users.view(np.uint32)):
            late = np.flatnonzero((self.args >= users) | (self.args < 0))[0]
            raise ScheduleError(
                f"vertex {users[late]} uses vertex {self.args[late]}, which does not come before"
                " it: the graph has a cycle or is not in topological order"
            )
        if self.segments is not None:
            self._check_segments(self.segments, users)
        if self.phases is not None or self.depths is not None:
            self._check_depths(users)

    def _check_depths(self, users: IntArray) -> None:
        phases, depths, n = self.phases, self.depths, self.n_vertices
        if phases is None or depths is None or {len(phases), len(depths)} != {n}:
            raise ScheduleError(f"phases and depths must each have one entry per vertex ({n})")
        if min(phases.min(initial=0), depths.min(initial=0)) < 0:
            raise ScheduleError("phases and depths must not be negative")
        args = self.args
        same = phases[args] == phases[users]
        late = (phases[args] > phases[users]) | (same & (depths[args] >= depths[users]))
        if self.segments is not None:
            late &= self.segments[args] == self.segments[users]
        if late.any():
            at = np.flatnonzero(late)[0]
            user, arg = users[at], args[at]
            raise ScheduleError(
                f"vertex {user} (phase {phases[user]}, depth {depths[user]}) uses vertex {arg}"
                f" (phase {phases[arg]}, depth {depths[arg]}): the depth goes back"
            )

    def _check_segments(self, segments: IntArray, users: IntArray) -> None:
        if len(segments) != self.n_vertices or segments.min(initial=0) < 0:
            raise ScheduleError(
                f"segments has {len(segments)} entries, the least {segments.min(initial=0)};"
                f" expected one for each of {self.n_vertices} vertices, at least 0"
            )
        n_args = self.arg_start[1:] - self.arg_start[:-1]
        late = segments.take(self.args) > segments.repeat(n_args)  # faster than indexing
        if np.logical_or.reduce(late):
            at = np.flatnonzero(late)[0]
            user, arg = users[at], self.args[at]
            raise ScheduleError(
                f"vertex {user} of segment {segments[user]} uses vertex {arg} of the later"
                f" segment {segments[arg]}"
            )

    def _check_follows(self) -> None:
        for name in ("follows", "cheap"):
            if len(getattr(self, name)) != self.n_types:
                raise ScheduleError(
                    f"{name} has {len(getattr(self, name))} entries;"
                    f" it needs one for each of {self.n_types} types"
                )
        if self.follows is _build_no_follows(self.n_types) or self.follows.max() == NO_TYPE:
            return
        led = self.follows != NO_TYPE
        leaders = self.follows[led]
        if leaders.min() <= UNBATCHABLE or leaders.max() >= self.n_types or led[leaders].any():
            raise ScheduleError(
                f"follows has {sorted(set(leaders.tolist()))}: expected batchable types that follow"
                " no other type"
            )
        if led[UNBATCHABLE]:
            raise ScheduleError("the unbatchable type cannot follow another type")
        (followers,) = np.nonzero(led[self.types])
        if len(followers) and self.phases is not None:
            raise ScheduleError("a graph with phases and depths has no vertex that follows another")
        starts = self.arg_start
        if (starts[followers + 1] - starts[followers] != 1).any() or (
            self.types[self.args[starts[followers]]] != self.follows[self.types[followers]]
        ).any():
            raise ScheduleError(
                "a vertex of a following type needs one argument, of the type that it follows"
            )
        if (
            self.segments is not None
            and (self.segments[followers] != self.segments[self.args[starts[followers]]]).any()
        ):
            raise ScheduleError(
                "a vertex of a following type must be in the segment of its argument"
            )

    @property
    def n_vertices(self) -> int:
        return len(self.types)

    @property
    def n_types(self) -> int:
        return len(self.type_names)

    def select_args(self, vertex: int) -> IntArray:
        return self.args[self.arg_start[vertex] : self.arg_start[vertex + 1]]

    def build_part(
        self,
        types: IntArray,
        arg_start: IntArray,
        args: IntArray,
        phases: IntArray | None = None,
        depths: IntArray | None = None,
    ) -> Graph:
        """Build a graph of a single segment with this graph's types.

        The arrays must be valid, for example parts of this graph's arrays. They are not checked,
        which would take ten times as long as a policy does for a small part.
        """
        return Graph.from_valid_arrays(
            *(types, arg_start, args, self.type_names),
            phases=phases,
            depths=depths,
            follows=self.follows,
            cheap=self.cheap,
        )


@functools.cache
def _build_no_follows(n_types: int) -> IntArray:
    return as_int_array(np.full(n_types, NO_TYPE))


@functools.cache
def _build_none_cheap(n_types: int) -> NDArray[np.bool_]:
    return _to_flags(np.zeros(n_types, dtype=np.bool_))


def _to_flags(values: object) -> NDArray[np.bool_]:
    flags = np.ascontiguousarray(values, dtype=np.bool_)
    flags.setflags(write=False)
    return flags


@dataclass(frozen=True, eq=False, slots=True)
class MiniBatch:
    """Graph of a mini-batch and the external inputs of its vertices.

    If the graph has several segments, an output belongs to the segment of the vertex that it reads.

    Attributes:
        pulls: (n,) int32 external inputs by name; -1 if a vertex has none.
        outputs: (k,) vertices whose state the output function reads, in canonical order
            (instances in order, vertices in each instance's order).
        function_ids: (n,) vertex function of each vertex, if it differs from the type.
        output_pulls: (k,) int32 external inputs of the output function by name, if they differ from
            those of the outputs' vertices.
    """

    graph: Graph
    pulls: Mapping[str, IntArray]
    outputs: IntArray
    n_instances: int
    function_ids: IntArray | None = None
    output_pulls: Mapping[str, IntArray] | None = None

    @property
    def segments(self) -> IntArray | None:
        return self.graph.segments

    def get_pull(self, name: str) -> IntArray:
        """Return the external inputs of a name (n,).

        Raises:
            ScheduleError: The mini-batch has none of this name.
        """
        if name not in self.pulls:
            raise ScheduleError(f"the mini-batch has no pull {name!r}")
        return self.pulls[name]

    @property
    def functions(self) -> IntArray:
        """Vertex function of each vertex (n,)."""
        return self.graph.types if self.function_ids is None else self.function_ids
