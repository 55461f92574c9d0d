"""What calls of all blocks must look like, as arrays, for the pass that looks at all of them.

That a call is wrong is found there (harness.programs.decode); which line it stands on, by recording
with checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from harness.programs.blocks import BlockShape
from harness.programs.call_text import COUNTED


class Fitting:
    """n_slots (n_types,): operands, COUNTED where a block takes any. fits (n_types, slots,
    n_types): whether a type may stand in a slot. needs (n_types, n_names): numbers that a type
    cannot be without.
    """

    def __init__(self, shapes: Iterable[BlockShape], n_types: int, names: Sequence[str]) -> None:
        shapes = tuple(shapes)
        most = max((len(shape.operands) for shape in shapes), default=0)
        self.n_slots = np.zeros(n_types, dtype=np.int32)
        self.fits: NDArray[np.bool_] = np.zeros((n_types, max(1, most), n_types), dtype=np.bool_)
        self.needs: NDArray[np.bool_] = np.zeros((n_types, len(names)), dtype=np.bool_)
        for shape in shapes:
            operands = shape.operands if shape.of_each is None else (shape.of_each,)
            self.n_slots[shape.type_id] = len(operands) if shape.of_each is None else COUNTED
            for slot, types in enumerate(operands):
                self.fits[shape.type_id, slot, list(types)] = True
            self.needs[shape.type_id] = [name in shape.pulls for name in names]
