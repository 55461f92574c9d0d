"""Memory of a decoded log, and the pieces of it that are returned to callers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynbatch.harness.programs.blocks import Feeds, Fitting, Rules
from dynbatch.harness.programs.decode import (
    COUNTER,
    FAULT,
    LEVEL,
    N_ARGS,
    N_FIBERS,
    N_STATE,
    DecodingArrays,
    N,
    decode_log,
    measure_log,
)
from dynbatch.harness.programs.log import CallText
from dynbatch.harness.values.arrays import IntArray, as_int_array


@dataclass(frozen=True, slots=True, eq=False)
class RecordedPiece:
    """Vertices in the order of recording, numbered from `base`.

    Attributes:
        types, segments, phases, depths: (n,).
        arg_start: (n + 1,), from 0.
        args: (m,), numbers of vertices, earlier ones included.
        pulls: external numbers (n,) by name; -1 for none.
    """

    base: int
    types: IntArray
    arg_start: IntArray
    args: IntArray
    segments: IntArray
    phases: IntArray
    depths: IntArray
    pulls: dict[str, IntArray]

    @property
    def n(self) -> int:
        """Number of vertices."""
        return len(self.types)


class Decoder:
    """Arrays of everything decoded so far, with spare capacity."""

    def __init__(self, rules: Rules, text: CallText, fitting: Fitting, n_instances: int) -> None:
        kinds, n_types, none = text.kinds, len(rules.static), np.zeros(0, dtype=np.int32)
        self.names, self.n_grown = rules.names, 0
        self.arrays = DecodingArrays(
            *(kinds.types, kinds.n_args, kinds.first_name, kinds.names),
            *(np.empty(n_types, dtype=np.int32), fitting.n_slots, fitting.fits, fitting.needs),
            state=np.zeros(N_STATE, dtype=np.int64),
            fibers=np.zeros(max(1, n_instances), dtype=np.int64),
            nested=np.zeros(0, dtype=np.int64),
            types=none,
            counters=np.zeros(0, dtype=np.int64),
            depths=np.zeros((3, 0), dtype=np.int32),
            arg_start=np.zeros(1, dtype=np.int32),
            args=none,
            pulled=np.zeros((len(rules.names), 0), dtype=np.int32),
            feeds=np.zeros((n_types, n_types), dtype=np.bool_),
        )
        self.begin(rules, n_instances)

    def begin(self, rules: Rules, n_instances: int) -> None:
        """Discard everything decoded; later pieces overwrite earlier ones, which become invalid."""
        self.base, self.restart = rules.base, rules.options.restart
        self.arrays.statics[...] = rules.static
        self.arrays.state.fill(0)
        self.arrays.feeds.fill(False)
        self.arrays.state[COUNTER], self.arrays.state[N_FIBERS] = self.base, n_instances
        self.ensure_capacity(0, 0, max(1, n_instances), 0)
        self.arrays.fibers[: max(1, n_instances)] = self.base
        self._n_given = 0

    def take(self, log: IntArray) -> None:
        """Decode a new part of the log."""
        arrays, so_far = self.arrays, self.arrays.state
        n, n_args, n_forked, deepest = measure_log(log, arrays.kind_args, arrays.first_name)
        self.ensure_capacity(
            int(so_far[N]) + n, int(so_far[N_ARGS]) + n_args, int(so_far[N_FIBERS]) + n_forked,
            int(so_far[LEVEL]) + deepest,
        )  # fmt: skip
        decode_log(log, self.base, self.restart, self.arrays)

    @property
    def fault(self) -> int:
        """Error code of the first invalid call, or FINE."""
        return int(self.arrays.state[FAULT])

    @property
    def feeds(self) -> Feeds:
        """[a, b]: vertices of type a are arguments of type b."""
        return self.arrays.feeds

    def ensure_capacity(self, n: int, n_args: int, n_fibers: int, deepest: int) -> None:
        """Ensure capacity: exactly as needed at first, then twice the need as segments follow."""
        arrays, lengths = self.arrays, {}
        if n > len(arrays.types):
            room = _choose_capacity(n, arrays.types)
            lengths = dict.fromkeys(("types", "counters", "depths", "pulled"), room)
            lengths["arg_start"] = room + 1
        if n_args > len(arrays.args):
            lengths["args"] = _choose_capacity(n_args, arrays.args)
        if n_fibers > len(arrays.fibers):
            lengths["fibers"] = _choose_capacity(n_fibers, arrays.fibers)
        if 2 * deepest > len(arrays.nested):
            lengths["nested"] = 2 * deepest
        if lengths:
            extended = {
                name: _extend_array(getattr(arrays, name), lengths[name]) for name in lengths
            }
            self.arrays = arrays._replace(**extended)
            self.n_grown += 1

    def cut(self) -> RecordedPiece:
        """Return the vertices that were not returned by earlier calls."""
        base, self._n_given = self._n_given, int(self.arrays.state[N])
        return self.extract_piece(base, self._n_given)

    def extract_piece(self, base: int, n: int) -> RecordedPiece:
        """Return the vertices from `base` to n, exclusive."""
        arrays = self.arrays
        arg_start = arrays.arg_start[base : n + 1]
        first, end = arg_start[[0, -1]].tolist()
        segments, phases, depths = (as_int_array(row[base:n]) for row in arrays.depths)
        return RecordedPiece(
            base=base,
            types=as_int_array(arrays.types[base:n]),
            arg_start=as_int_array(arg_start - first if base else arg_start),
            args=as_int_array(arrays.args[first:end]),
            segments=segments,
            phases=phases,
            depths=depths,
            pulls={
                name: as_int_array(arrays.pulled[k, base:n]) for k, name in enumerate(self.names)
            },
        )


def pack_numbers(numbers: Sequence[int]) -> IntArray:
    """Return a read-only int32 array, in a sixth of the time that NumPy takes.

    Raises:
        TypeError: for anything but 32-bit integers.
    """
    try:
        content = struct.Struct(f"{len(numbers)}i").pack(*numbers)
    except struct.error as error:
        raise TypeError("expected an integer of at most 32 bits") from error
    return np.frombuffer(content, dtype=np.int32)


def _choose_capacity(n: int, array: Any) -> int:
    return 2 * n if len(array) else n


def _extend_array(array: Any, n: int) -> Any:
    """Return a copy of an array whose last dimension is extended to n."""
    extended = np.empty((*array.shape[:-1], n), dtype=array.dtype)
    extended[..., : array.shape[-1]] = array
    return extended
