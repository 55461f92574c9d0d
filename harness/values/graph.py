"""The typed graph of a mini-batch, as integer arrays: what every policy schedules."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from harness.errors import ScheduleError
from harness.values.arrays import IntArray, int_array

UNBATCHABLE = 0
NO_TYPE = -1


@dataclass(frozen=True, eq=False, slots=True)
class Graph:
    """A directed acyclic graph of typed vertices; arguments come before the vertices that use them.

    types (n,): type of each vertex; type 0 is unbatchable (a batch of its own).
    arg_start (n + 1,), args (m,): arguments of vertex v, by slot, are
        args[arg_start[v]:arg_start[v + 1]].
    type_names: a name for every type id.
    follows (n_types,): the type whose batch forces a batch of this type right behind it
        (ED-Batch's "get" nodes, one for each output of a block), NO_TYPE for ordinary types. A
        vertex of such a type has one argument, of the type it follows.
    cheap (n_types,): types that the agenda policy prefers on ties (DyNet's elementwise operators:
        dynet/exec.cc); none unless given.
    rounds (n,): where control flow lets the graph be seen only piece by piece, the round in which
        each vertex appears, from 0: what a round holds is evaluated before the next one appears.
        None where all is seen at once.
    phases, depths (n,): what a program that recorded the graph counted while it ran, both or none:
        the stage of the program that a vertex is of, and its inline depth in it, from 0. Of the
        same round, arguments have a smaller (phase, depth).

    Raises ScheduleError when the arrays are inconsistent, an argument does not come first (a
    cycle) or is of a later round, a vertex is not of the round of the one that it follows, or a
    depth goes back.
    """

    types: IntArray
    arg_start: IntArray
    args: IntArray
    type_names: tuple[str, ...]
    follows: IntArray = field(default_factory=lambda: int_array([]))
    cheap: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    rounds: IntArray | None = None
    phases: IntArray | None = None
    depths: IntArray | None = None

    def __post_init__(self) -> None:
        take = object.__setattr__
        take(self, "types", int_array(self.types))
        take(self, "arg_start", int_array(self.arg_start))
        take(self, "args", int_array(self.args))
        n_types = self.n_types
        no_follows = len(self.follows) == 0
        take(self, "follows", _no_followers(n_types) if no_follows else int_array(self.follows))
        take(self, "cheap", _flags(self.cheap) if len(self.cheap) else _none_cheap(n_types))
        for name in ("rounds", "phases", "depths"):
            if getattr(self, name) is not None:
                take(self, name, int_array(getattr(self, name)))
        self._check()
        self._check_follows()

    @classmethod
    def proved(
        cls,
        types: IntArray,
        arg_start: IntArray,
        args: IntArray,
        type_names: tuple[str, ...],
        rounds: IntArray | None = None,
        phases: IntArray | None = None,
        depths: IntArray | None = None,
    ) -> Graph:
        """A graph of int32 arrays that whoever made them has proved to be right.

        They are read-only from here on. Nothing follows, and nothing is cheap.
        """
        types.setflags(write=False)
        arg_start.setflags(write=False)
        args.setflags(write=False)
        for more in (rounds, phases, depths):
            if more is not None:
                more.setflags(write=False)
        made, take = object.__new__(cls), object.__setattr__
        take(made, "types", types)
        take(made, "arg_start", arg_start)
        take(made, "args", args)
        take(made, "rounds", rounds)
        take(made, "phases", phases)
        take(made, "depths", depths)
        take(made, "type_names", type_names)
        take(made, "follows", _no_followers(len(type_names)))
        take(made, "cheap", _none_cheap(len(type_names)))
        return made

    def _check(self) -> None:
        # This runs in the construct phase of every mini-batch: few passes, no text unless needed.
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
        # As unsigned numbers, negative ones are too large.
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
        if self.rounds is not None:
            self._check_rounds(self.rounds, users)
        if self.phases is not None or self.depths is not None:
            self._check_depths(users)

    def _check_depths(self, users: IntArray) -> None:
        phases, depths, n = self.phases, self.depths, self.n_vertices
        if phases is None or depths is None or {len(phases), len(depths)} != {n}:
            raise ScheduleError(f"phases and depths need an entry for each of {n} vertices, both")
        if min(phases.min(initial=0), depths.min(initial=0)) < 0:
            raise ScheduleError("phases and depths are counted from 0")
        args = self.args
        same = phases[args] == phases[users]
        late = (phases[args] > phases[users]) | (same & (depths[args] >= depths[users]))
        if self.rounds is not None:
            late &= self.rounds[args] == self.rounds[users]
        if late.any():
            at = np.flatnonzero(late)[0]
            user, arg = users[at], args[at]
            raise ScheduleError(
                f"vertex {user} (phase {phases[user]}, depth {depths[user]}) uses vertex {arg}"
                f" (phase {phases[arg]}, depth {depths[arg]}): the depth goes back"
            )

    def _check_rounds(self, rounds: IntArray, users: IntArray) -> None:
        if len(rounds) != self.n_vertices or rounds.min(initial=0) < 0:
            raise ScheduleError(
                f"rounds has {len(rounds)} entries, the least {rounds.min(initial=0)}; it needs one"
                f" for each of {self.n_vertices} vertices, from 0"
            )
        late = np.flatnonzero(rounds[self.args] > rounds[users])
        if len(late):
            user, arg = users[late[0]], self.args[late[0]]
            raise ScheduleError(
                f"vertex {user} of round {rounds[user]} uses vertex {arg}, which only appears in"
                f" round {rounds[arg]}"
            )

    def _check_follows(self) -> None:
        for name in ("follows", "cheap"):
            if len(getattr(self, name)) != self.n_types:
                raise ScheduleError(
                    f"{name} has {len(getattr(self, name))} entries;"
                    f" it needs one for each of {self.n_types} types"
                )
        if self.follows is _no_followers(self.n_types) or self.follows.max() == NO_TYPE:
            return
        led = self.follows != NO_TYPE
        leaders = self.follows[led]
        if leaders.min() <= UNBATCHABLE or leaders.max() >= self.n_types or led[leaders].any():
            raise ScheduleError(
                f"follows names {sorted(set(leaders.tolist()))}; a type can only follow a batchable"
                " type that follows none itself"
            )
        if led[UNBATCHABLE]:
            raise ScheduleError("the unbatchable type cannot follow another type")
        (followers,) = np.nonzero(led[self.types])
        starts = self.arg_start
        if (starts[followers + 1] - starts[followers] != 1).any() or (
            self.types[self.args[starts[followers]]] != self.follows[self.types[followers]]
        ).any():
            raise ScheduleError(
                "a vertex of a type that follows another needs one argument, of the type it follows"
            )
        if (
            self.rounds is not None
            and (self.rounds[followers] != self.rounds[self.args[starts[followers]]]).any()
        ):
            raise ScheduleError("a vertex of a type that follows another needs that one's round")

    @property
    def n_vertices(self) -> int:
        """Number of vertices."""
        return len(self.types)

    @property
    def n_types(self) -> int:
        """Number of type ids, the unbatchable type 0 included."""
        return len(self.type_names)

    @property
    def has_followers(self) -> bool:
        """Whether any type follows another."""
        return self.follows is not _no_followers(self.n_types) and self.follows.max() != NO_TYPE

    def args_of(self, vertex: int) -> IntArray:
        """Arguments of one vertex, by slot."""
        return self.args[self.arg_start[vertex] : self.arg_start[vertex + 1]]

    def part(
        self,
        types: IntArray,
        arg_start: IntArray,
        args: IntArray,
        phases: IntArray | None = None,
        depths: IntArray | None = None,
    ) -> Graph:
        """Some vertices of this graph, or more of its types, as a graph that is seen at once.

        The arrays are taken as they are: read-only, and right since those were that they are cut
        from; checking them would take ten times as long as a policy does for a small part.
        """
        made = object.__new__(Graph)
        take = object.__setattr__
        take(made, "types", types)
        take(made, "arg_start", arg_start)
        take(made, "args", args)
        take(made, "type_names", self.type_names)
        take(made, "follows", self.follows)
        take(made, "cheap", self.cheap)
        take(made, "rounds", None)
        take(made, "phases", phases)
        take(made, "depths", depths)
        return made


@functools.cache
def _no_followers(n_types: int) -> IntArray:
    return int_array(np.full(n_types, NO_TYPE))


@functools.cache
def _none_cheap(n_types: int) -> NDArray[np.bool_]:
    return _flags(np.zeros(n_types, dtype=np.bool_))


def _flags(values: object) -> NDArray[np.bool_]:
    flags = np.ascontiguousarray(values, dtype=np.bool_)
    flags.setflags(write=False)
    return flags


@dataclass(frozen=True, eq=False, slots=True)
class MiniBatch:
    """What a model makes of K instances: their graph and what the vertices read from outside.

    pulls: external inputs by name, one int32 per vertex (n,), -1 where a vertex has none.
    outputs (k,): the vertices whose state the output function reads, in canonical order
        (instances in order, vertices in each instance's own order).
    function_ids (n,): which vertex function each vertex applies, where that is not its type.
    output_pulls: what the output function pulls, one int32 per output (k,), where that is not
        what the output's vertex pulls.

    An output is of the round of the vertex that it reads, where the graph has rounds.
    """

    graph: Graph
    pulls: Mapping[str, IntArray]
    outputs: IntArray
    n_instances: int
    function_ids: IntArray | None = None
    output_pulls: Mapping[str, IntArray] | None = None

    @property
    def rounds(self) -> IntArray | None:
        """The round in which each vertex appears (n,), where there are rounds: see Graph."""
        return self.graph.rounds

    @property
    def functions(self) -> IntArray:
        """Vertex function of every vertex (n,)."""
        return self.graph.types if self.function_ids is None else self.function_ids
