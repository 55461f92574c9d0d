"""Whether what was recorded fits the blocks, all calls at once.

That a call is wrong is found here; which line it stands on, by recording with checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from harness.errors import ProgramError
from harness.programs.blocks import BlockShape
from harness.values.arrays import IntArray

ANY_NUMBER = -1


class Fitting:
    """What calls of all blocks must look like, as arrays.

    n_slots (n_types,): operands, ANY_NUMBER where a block takes any. fits (n_types, slots,
    n_types): whether a type may stand in a slot.
    """

    def __init__(self, shapes: Iterable[BlockShape], n_types: int) -> None:
        self.shapes = tuple(shapes)
        most = max((len(shape.operands) for shape in self.shapes), default=0)
        self.n_slots = np.zeros(n_types, dtype=np.int32)
        self.fits: NDArray[np.bool_] = np.zeros((n_types, max(1, most), n_types), dtype=np.bool_)
        for shape in self.shapes:
            operands = shape.operands if shape.of_each is None else (shape.of_each,)
            n = len(operands) if shape.of_each is None else ANY_NUMBER
            self.n_slots[shape.type_id] = n
            for slot, types in enumerate(operands):
                self.fits[shape.type_id, slot, list(types)] = True

    def check(
        self,
        types: IntArray,
        arg_start: IntArray,
        arg_types: IntArray,
        pulls: Mapping[str, IntArray],
    ) -> None:
        """Raise ProgramError where any call does not fit.

        types (n,): of the calls. arg_start (n + 1,): where operands of each begin among those whose
        types are arg_types (m,). pulls: numbers (n,) by name, below 0 where there is none.
        """
        n_args = arg_start[1:] - arg_start[:-1]
        wanted = self.n_slots[types]
        if ((wanted != ANY_NUMBER) & (wanted != n_args)).any():
            raise ProgramError("a block is called with another number of operands than traced")
        users = np.arange(len(types), dtype=np.int32).repeat(n_args)
        slots = np.arange(len(arg_types), dtype=np.int32) - arg_start[users]
        slots[self.n_slots[types[users]] == ANY_NUMBER] = 0
        if not self.fits[types[users], slots, arg_types].all():
            raise ProgramError("a block is called with other shapes than traced")
        for shape in self.shapes:
            mine = types == shape.type_id
            if any((pulls[name][mine] < 0).any() for name in shape.pulls):
                raise ProgramError(f"{shape.name} is called without a number that it needs")
