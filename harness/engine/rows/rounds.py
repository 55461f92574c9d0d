"""What runs between two looks at the loss: one round of a mini-batch, or all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.engine.lowering.plan import Plan, Ref
from harness.engine.rows.geometry import OutputRows
from harness.engine.rows.layout import Layout
from harness.values.instances import IntArray

ALL_ROWS = -1  # the position of a batch that is all rows of a function at once


@dataclass(frozen=True, eq=False, slots=True)
class Round:
    """Batches (type id, position) (k, 2) in order of execution.

    eager, lazy: before and behind the others, each type's rows of the round at once where they are
    all that it has. losses: of the functions with a loss, where it is and which rows are new.
    """

    eager: IntArray
    batches: IntArray
    lazy: IntArray
    losses: tuple[tuple[int, Ref, slice], ...]


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
    losses: tuple[tuple[int, Ref, slice], ...]

    def round_of(self, batches: IntArray) -> Round:
        """What a mini-batch of these batches runs."""
        both = np.concatenate([batches, self.read]) if len(self.read) else batches
        return Round(self.eager, both, self.lazy, self.losses)


def around(plans: Mapping[int, Plan], types: tuple[int, ...], output_ids: Iterable[int]) -> Around:
    """What is run once, of these functions; types: of outputs, too."""
    losses = [(t, plans[t].loss) for t in types]
    return Around(
        eager=_pairs([(t, ALL_ROWS) for t in types if plans[t].steps("eager")]),
        lazy=_pairs([(t, ALL_ROWS) for t in types if plans[t].steps("lazy")]),
        whole=_pairs([(t, ALL_ROWS) for t in types]),
        read=_pairs([(k, 0) for k in output_ids]),
        losses=tuple(
            (t, plans[t].refs[loss], slice(None)) for t, loss in losses if loss is not None
        ),
    )


def _pairs(pairs: list[tuple[int, int]]) -> IntArray:
    return np.array(pairs, dtype=np.int32).reshape(-1, 2)


def plan_rounds(
    plans: Mapping[int, Plan],
    layout: Layout,
    round_starts: IntArray,
    outputs: Mapping[int, OutputRows],
) -> list[Round]:
    """Put together what each round runs: its batches, and then its outputs."""
    n_rounds = len(round_starts) - 1
    in_round: list[IntArray] = [
        np.arange(n_rounds, dtype=np.int32).repeat(round_starts[1:] - round_starts[:-1])
    ]
    batches = [layout.batches]
    for k, rows in outputs.items():
        positions = np.arange(len(rows.rounds))
        batches.append(np.stack([np.full(len(positions), k), positions], axis=1))
        in_round.append(rows.rounds)
    all_batches, rounds = np.concatenate(batches).astype(np.int32), np.concatenate(in_round)
    order = rounds.argsort(kind="stable")
    all_batches, rounds = all_batches[order], rounds[order]
    at_once, their_rounds = _at_once(all_batches, rounds)
    stages = {}
    for stage in ("eager", "lazy"):
        having = [type_id for type_id in (*layout.types, *outputs) if plans[type_id].steps(stage)]
        mine = np.isin(at_once[:, 0], having)
        stages[stage] = _by_round(at_once[mine], their_rounds[mine], n_rounds)
    losses = _losses(plans, layout, outputs, all_batches, rounds, n_rounds)
    runs = _by_round(all_batches, rounds, n_rounds)
    return [
        Round(eager, batches, lazy, tuple(new))
        for eager, batches, lazy, new in zip(
            stages["eager"], runs, stages["lazy"], losses, strict=True
        )
    ]


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


def _by_round(batches: IntArray, rounds: IntArray, n_rounds: int) -> Iterator[IntArray]:
    bounds = np.searchsorted(rounds, np.arange(n_rounds + 1)).tolist()
    return (batches[bounds[r] : bounds[r + 1]] for r in range(n_rounds))


def _losses(
    plans: Mapping[int, Plan],
    layout: Layout,
    outputs: Mapping[int, OutputRows],
    batches: IntArray,
    rounds: IntArray,
    n_rounds: int,
) -> Sequence[list[tuple[int, Ref, slice]]]:
    found: list[list[tuple[int, Ref, slice]]] = [[] for _ in range(n_rounds)]
    starts = {type_id: rows.starts for type_id, rows in layout.types.items()}
    starts |= {k: rows.geometry.rows.starts for k, rows in outputs.items()}
    for type_id, starts_of_type in starts.items():
        plan = plans[type_id]
        if plan.loss is None:
            continue
        mine = rounds[batches[:, 0] == type_id]
        bounds = starts_of_type[np.searchsorted(mine, np.arange(n_rounds + 1))].tolist()
        for r in range(n_rounds):
            if bounds[r] < bounds[r + 1]:
                rows = slice(bounds[r], bounds[r + 1])
                found[r].append((type_id, plan.refs[plan.loss], rows))
    return found
