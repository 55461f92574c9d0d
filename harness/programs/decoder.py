"""Memory of what was decoded of a log, part by part, and the pieces that it gives out."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.programs.blocks import Feeds, Fitting, Rules
from harness.programs.decode import (
    COUNTER,
    LEVEL,
    N_ARGS,
    N_FIBERS,
    N_STATE,
    N,
    decoded,
    measured,
)
from harness.programs.log import CallText
from harness.values.arrays import IntArray, int_array


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Vertices in the order of recording, numbered from `base` on.

    types, rounds, phases, depths (n,). arg_start (n + 1,): from 0. args (m,): numbers of vertices,
    of earlier calls too. pulls: external numbers (n,) by name, -1 where there is none.
    """

    base: int
    types: IntArray
    arg_start: IntArray
    args: IntArray
    rounds: IntArray
    phases: IntArray
    depths: IntArray
    pulls: dict[str, IntArray]

    @property
    def n(self) -> int:
        """Number of vertices."""
        return len(self.types)


class Decoder:
    """Arrays of all that was decoded so far, with room for more.

    kinds, statics, fitting: see `decoded`. state (N_STATE,). fibers: the counter of each. types,
    counters, arg_start, args, depths, pulls: see `decoded`. feeds: which type's vertices are
    arguments of which type's. n_grown: how often any of these was made anew.
    """

    def __init__(self, rules: Rules, text: CallText, fitting: Fitting, n_instances: int) -> None:
        kinds = text.kinds
        self.kinds = kinds.types, kinds.n_args, kinds.first_name, kinds.names
        self.fitting, self.names = fitting, rules.names
        n_types = len(rules.static)
        self.state = np.zeros(N_STATE, dtype=np.int64)
        self.fibers = np.zeros(0, dtype=np.int64)
        self.nested = np.zeros(0, dtype=np.int64)
        self.feeds: Feeds = np.zeros((n_types, n_types), dtype=np.bool_)
        self.types: IntArray = np.zeros(0, dtype=np.int32)
        self.counters = np.zeros(0, dtype=np.int64)
        self.depths: IntArray = np.zeros((3, 0), dtype=np.int32)  # rounds, phases, depths
        self.arg_start: IntArray = np.zeros(1, dtype=np.int32)
        self.args: IntArray = np.zeros(0, dtype=np.int32)
        self.pulls: IntArray = np.zeros((len(rules.names), 0), dtype=np.int32)
        self.n_grown = 0
        self.begin(rules, n_instances)

    def begin(self, rules: Rules, n_instances: int) -> None:
        """Forget all that was decoded, and write over it: pieces of it are of no use any more."""
        self.statics, self.base = int_array(rules.static), rules.base
        self.restart = rules.options.restart
        self.state.fill(0)
        self.feeds.fill(False)
        self.state[COUNTER], self.state[N_FIBERS] = self.base, n_instances
        self.make_room(0, 0, max(1, n_instances), 0)
        self.fibers[: max(1, n_instances)] = self.base
        self._n_given = self._n_args_given = 0

    def take(self, log: IntArray) -> None:
        """Decode what was added to the log."""
        n, n_args, n_forked, deepest = measured(log, self.kinds[1], self.kinds[2])
        so_far = self.state
        self.make_room(
            int(so_far[N]) + n, int(so_far[N_ARGS]) + n_args, int(so_far[N_FIBERS]) + n_forked,
            int(so_far[LEVEL]) + deepest,
        )  # fmt: skip
        decoded(
            log,
            self.kinds,
            (self.statics, self.fitting.n_slots, self.fitting.fits, self.fitting.needs),
            self.base,
            self.restart,
            self.state,
            self.fibers,
            self.nested,
            (self.types, self.counters, self.depths, self.arg_start),
            self.args,
            self.pulls,
            self.feeds,
        )

    def make_room(self, n: int, n_args: int, n_fibers: int, deepest: int) -> None:
        """Make room, at first as much as is needed; twice that if more comes round by round."""
        if n > len(self.types):
            room = _twice(n, self.types)
            self.types = _longer(self.types, room)
            self.counters = _longer(self.counters, room)
            self.arg_start = _longer(self.arg_start, room + 1)
            self.depths = _longer(self.depths, room)
            self.pulls = _longer(self.pulls, room)
            self.n_grown += 1
        if n_args > len(self.args):
            self.args = _longer(self.args, _twice(n_args, self.args))
            self.n_grown += 1
        if n_fibers > len(self.fibers):
            self.fibers = _longer(self.fibers, _twice(n_fibers, self.fibers))
            self.n_grown += 1
        if 2 * deepest > len(self.nested):
            self.nested = _longer(self.nested, 2 * deepest)
            self.n_grown += 1

    def cut(self) -> Piece:
        """Return the vertices that were not given out yet."""
        base, n = self._n_given, int(self.state[N])
        first, end = self._n_args_given, int(self.state[N_ARGS])
        self._n_given, self._n_args_given = n, end
        return self._piece(base, n, first, end)

    def piece(self, base: int, n: int) -> Piece:
        """Return the vertices from `base` on and below n."""
        return self._piece(base, n, *self.arg_start[[base, n]].tolist())

    def _piece(self, base: int, n: int, first: int, end: int) -> Piece:
        arg_start = self.arg_start[base : n + 1]
        return Piece(
            base=base,
            types=int_array(self.types[base:n]),
            arg_start=int_array(arg_start - arg_start[0] if base else arg_start),
            args=int_array(self.args[first:end]),
            rounds=int_array(self.depths[0, base:n]),
            phases=int_array(self.depths[1, base:n]),
            depths=int_array(self.depths[2, base:n]),
            pulls={name: int_array(self.pulls[k, base:n]) for k, name in enumerate(self.names)},
        )


def packed(numbers: Sequence[int]) -> IntArray:
    """Return a read-only int32 array, in a sixth of the time that NumPy takes for it.

    Raises TypeError where anything is no number of 32 bits.
    """
    try:
        content = struct.Struct(f"{len(numbers)}i").pack(*numbers)
    except struct.error as error:
        raise TypeError("a number of 32 bits is needed") from error
    return np.frombuffer(content, dtype=np.int32)


def _twice(n: int, array: Any) -> int:
    return 2 * n if len(array) else n


def _longer(array: Any, n: int) -> Any:
    """Return the same numbers with room for n."""
    found = np.empty((*array.shape[:-1], n), dtype=array.dtype)
    found[..., : array.shape[-1]] = array
    return found
