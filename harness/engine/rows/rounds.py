"""What runs between two looks at the loss: one round of a mini-batch, or all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from harness.engine.lowering.plan import FORWARD, Plan, Ref
from harness.engine.rows.layout import Layout
from harness.values.arrays import IntArray

ALL_ROWS = -1  # the position of a batch that is all rows of a function at once
Run = tuple[str, IntArray]  # a stage, and its batches (type id, position) (k, 2)
Loss = tuple[int, Ref, slice]  # of a function, where it is, and which of its rows count


@dataclass(frozen=True, eq=False, slots=True)
class Round:
    """Batches (type id, position) (k, 2) in order of execution.

    eager, lazy: before and behind the others, each type's rows of the round at once where they are
    all that it has. losses: of the functions with a loss, where it is and which rows are new.
    """

    eager: IntArray
    batches: IntArray
    lazy: IntArray
    losses: tuple[Loss, ...]

    @property
    def runs(self) -> list[Run]:
        """What it runs, in order."""
        stages = zip(FORWARD, (self.eager, self.batches, self.lazy), strict=True)
        return [(stage, batches) for stage, batches in stages if len(batches)]


@dataclass(frozen=True, eq=False, slots=True)
class LossRows:
    """Where the loss of a function is, and where its rows of each round begin (n_rounds + 1,)."""

    type_id: int
    ref: Ref
    starts: IntArray


@dataclass(frozen=True, eq=False)
class Rounds(Sequence[Round]):
    """All rounds of a mini-batch, planned together: there may be a hundred of a few batches each.

    batches: of each of FORWARD, those of all rounds (k, 2), round after round. starts: of each
    stage, where those of each round begin (n_rounds + 1,). losses: of each function that has one.
    """

    batches: Mapping[str, IntArray]
    starts: Mapping[str, NDArray[np.integer]]
    losses: Sequence[LossRows]

    def __len__(self) -> int:
        return len(self.starts["batch"]) - 1

    @overload
    def __getitem__(self, r: int) -> Round: ...
    @overload
    def __getitem__(self, r: slice) -> list[Round]: ...
    def __getitem__(self, r: int | slice) -> Round | list[Round]:
        if isinstance(r, slice):
            return [self[k] for k in range(len(self))[r]]
        r = range(len(self))[r]
        eager, batches, lazy = (
            self.batches[stage][self.starts[stage][r] : self.starts[stage][r + 1]]
            for stage in FORWARD
        )
        rows = ((one, one.starts[r : r + 2].tolist()) for one in self.losses)
        losses = [(one.type_id, one.ref, slice(*ends)) for one, ends in rows if ends[0] < ends[1]]
        return Round(eager, batches, lazy, tuple(losses))


@dataclass(frozen=True, eq=False, slots=True)
class Around:
    """What mini-batches without rounds that have the same functions run around their batches.

    eager, lazy, losses: as in Round. whole: all rows of every function at once. read: the only
    batch of every output function.
    """

    eager: IntArray
    lazy: IntArray
    whole: IntArray
    read: IntArray
    losses: tuple[Loss, ...]

    def round_of(self, batches: IntArray) -> Round:
        """What a mini-batch runs that has these batches, those of output functions at the end."""
        return Round(self.eager, batches, self.lazy, self.losses)


def around(plans: Mapping[int, Plan], types: tuple[int, ...]) -> Around:
    """What is run once, of these functions; types: of outputs, too."""
    losses = [(t, plans[t].loss) for t in types]
    return Around(
        eager=_pairs([(t, ALL_ROWS) for t in types if plans[t].steps("eager")]),
        lazy=_pairs([(t, ALL_ROWS) for t in types if plans[t].steps("lazy")]),
        whole=_pairs([(t, ALL_ROWS) for t in types]),
        read=_pairs([(t, 0) for t in types if t < 0]),
        losses=tuple(
            (t, plans[t].refs[loss], slice(None)) for t, loss in losses if loss is not None
        ),
    )


def _pairs(pairs: list[tuple[int, int]]) -> IntArray:
    return np.array(pairs, dtype=np.int32).reshape(-1, 2)


def plan_rounds(plans: Mapping[int, Plan], layout: Layout, round_starts: IntArray) -> Rounds:
    """Put together what each round runs: its batches, and then its outputs."""
    numbers = np.arange(len(round_starts), dtype=np.int32)  # of rounds, and behind the last one
    in_round: list[IntArray] = [numbers[:-1].repeat(round_starts[1:] - round_starts[:-1])]
    found = [layout.batches]
    for k in (type_id for type_id in layout if type_id < 0):
        of_output = layout.output_rounds(k).astype(np.int32)
        positions = np.arange(len(of_output), dtype=np.int32)
        found.append(np.stack([np.full_like(positions, k), positions], axis=1))
        in_round.append(of_output)
    batches, rounds = np.concatenate(found), np.concatenate(in_round)
    if len(found) > 1:
        order = rounds.argsort(kind="stable")
        batches, rounds = batches[order], rounds[order]
    at_once, their_rounds = _at_once(batches, rounds)
    of_stage = {"batch": batches}
    starts = {"batch": rounds.searchsorted(numbers)}
    for stage in ("eager", "lazy"):
        has_steps = np.zeros(layout.fields.n_functions, dtype=np.bool_)  # outputs from its end on
        has_steps[[type_id for type_id in layout if plans[type_id].steps(stage)]] = True
        mine = has_steps[at_once[:, 0]]
        of_stage[stage] = at_once[mine]
        starts[stage] = their_rounds[mine].searchsorted(numbers)
    losses = _losses(plans, layout, batches, rounds, numbers)
    return Rounds(of_stage, starts, losses)


def _at_once(batches: IntArray, rounds: IntArray) -> tuple[IntArray, IntArray]:
    """The batches, those of a type that is in one round only as one, and their rounds."""
    types, positions = batches[:, 0] - batches[:, 0].min(initial=0), batches[:, 1]
    first, last = (np.zeros(types.max(initial=0) + 1, dtype=np.int64) for _ in range(2))
    last[types] = rounds  # the last one written stays
    first[types[::-1]] = rounds[::-1]
    is_one = (first == last)[types]
    merged = batches.copy()
    merged[is_one, 1] = ALL_ROWS
    kept = ~is_one | (positions == 0)
    return merged[kept], rounds[kept]


def _losses(
    plans: Mapping[int, Plan],
    layout: Layout,
    batches: IntArray,
    rounds: IntArray,
    numbers: IntArray,
) -> list[LossRows]:
    found = []
    for type_id in layout:
        plan = plans[type_id]
        if plan.loss is not None:
            mine = rounds[batches[:, 0] == type_id]
            rows = layout.starts(type_id)[mine.searchsorted(numbers)].astype(np.int32)
            found.append(LossRows(type_id, plan.refs[plan.loss], rows))
    return found
