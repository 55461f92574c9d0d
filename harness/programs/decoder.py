"""Keeps what was decoded of a log, part by part, and gives it out as pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.programs.call_text import CallText
from harness.programs.decode import (
    COUNTER,
    N_ARGS,
    N_STATE,
    N,
    decoded,
    measured,
)
from harness.programs.pieces import Piece
from harness.programs.recorder import Rules
from harness.programs.taint import Feeds
from harness.programs.verify import Fitting
from harness.values.arrays import IntArray, int_array


class Decoder:
    """Arrays of all that was decoded so far, with room for more.

    fibers: the counter of each. feeds: which type's vertices are arguments of which type's.
    """

    def __init__(self, rules: Rules, text: CallText, fitting: Fitting, n_instances: int) -> None:
        kinds = text.kinds
        self._kinds = kinds.types, kinds.n_args, kinds.first_name, kinds.names
        self._rules = int_array(rules.static), fitting.n_slots, fitting.fits, fitting.needs
        self._base, self._restart, self._names = rules.base, rules.options.restart, rules.names
        self.state = np.zeros(N_STATE, dtype=np.int64)
        self.state[COUNTER] = self._base
        self.fibers = np.full(max(1, n_instances), self._base, dtype=np.int64)
        n_types = len(rules.static)
        self.feeds: Feeds = np.zeros((n_types, n_types), dtype=np.bool_)
        self._types: IntArray = np.zeros(0, dtype=np.int32)
        self._counters = np.zeros(0, dtype=np.int64)
        self._depths: IntArray = np.zeros((3, 0), dtype=np.int32)  # rounds, phases, depths
        self._arg_start: IntArray = np.zeros(1, dtype=np.int32)
        self._args: IntArray = np.zeros(0, dtype=np.int32)
        self.pulls: IntArray = np.zeros((len(rules.names), 0), dtype=np.int32)
        self._n_given = self._n_args_given = 0

    def take(self, log: IntArray) -> None:
        """Decode what was added to the log."""
        n, n_args, n_forked, deepest = measured(log, self._kinds[1], self._kinds[2])
        self._make_room(int(self.state[N]) + n, int(self.state[N_ARGS]) + n_args)
        more = np.zeros(n_forked, dtype=np.int64)
        self.fibers = np.concatenate([self.fibers, more]) if n_forked else self.fibers
        decoded(
            log,
            self._kinds,
            self._rules,
            self._base,
            self._restart,
            self.state,
            self.fibers,
            np.zeros(2 * deepest, dtype=np.int64),
            (self._types, self._counters, self._depths, self._arg_start),
            self._args,
            self.pulls,
            self.feeds,
        )

    def _make_room(self, n: int, n_args: int) -> None:
        """All at once the first time; twice what is needed where more comes round by round."""
        if n > len(self._types):
            room = 2 * n if len(self._types) else n
            self._types = _longer(self._types, room)
            self._counters = _longer(self._counters, room)
            self._arg_start = _longer(self._arg_start, room + 1)
            self._depths = _longer(self._depths, room)
            self.pulls = _longer(self.pulls, room)
        if n_args > len(self._args):
            self._args = _longer(self._args, 2 * n_args if len(self._args) else n_args)

    def cut(self) -> Piece:
        """Those that were not given out yet."""
        base, n = self._n_given, int(self.state[N])
        first, end = self._n_args_given, int(self.state[N_ARGS])
        self._n_given, self._n_args_given = n, end
        arg_start = self._arg_start[base : n + 1]
        return Piece(
            base=base,
            types=int_array(self._types[base:n]),
            arg_start=int_array(arg_start - arg_start[0] if base else arg_start),
            args=int_array(self._args[first:end]),
            rounds=int_array(self._depths[0, base:n]),
            phases=int_array(self._depths[1, base:n]),
            depths=int_array(self._depths[2, base:n]),
            pulls={name: int_array(self.pulls[k, base:n]) for k, name in enumerate(self._names)},
        )


def _longer(array: Any, n: int) -> Any:
    """The same numbers with room for n."""
    found = np.empty((*array.shape[:-1], n), dtype=array.dtype)
    found[..., : array.shape[-1]] = array
    return found
