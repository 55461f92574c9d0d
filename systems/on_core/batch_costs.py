"""What one more batch of a type costs on this machine, measured on the engine itself.

The batches of a type are cut into pieces: what forward and backward then take longer, over how many
batches there are more, is the cost of one more batch of its operators, at the sizes that batches of
this workload have. Same rows, same operators: whatever else a mini-batch takes stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from harness.values.graph import Graph
from harness.values.schedule import Schedule

PIECES = 4  # of a batch that is cut
MOST_CUT_ALONE = 6  # types; all others are cut together, and cost the same

Time = Callable[[Schedule], float]  # seconds of forward and backward under a schedule


def batches_by_type(graph: Graph, schedule: Schedule) -> Counter[int]:
    """How many batches of each type a schedule has."""
    types: list[int] = graph.types[schedule.order[schedule.starts[:-1]]].tolist()
    return Counter(types)


def cut(graph: Graph, schedule: Schedule, types: Collection[int]) -> Schedule:
    """The schedule with every batch of these types in PIECES pieces, or as many as it has rows."""
    kinds = graph.types[schedule.order[schedule.starts[:-1]]]
    sizes = np.diff(schedule.starts)
    n_pieces = np.where(np.isin(kinds, list(types)), np.minimum(sizes, PIECES), 1)
    ends = [
        first + size * np.arange(1, n + 1) // n
        for first, size, n in zip(schedule.starts[:-1], sizes, n_pieces, strict=True)
    ]
    starts = np.concatenate([[0], *ends]).astype(np.int32)
    if schedule.round_starts is None:
        return replace(schedule, starts=starts)
    before = np.concatenate([[0], np.cumsum(n_pieces)]).astype(np.int32)
    return replace(schedule, starts=starts, round_starts=before[schedule.round_starts])


def costs_of(graph: Graph, schedule: Schedule, time: Time) -> tuple[float, Mapping[int, float]]:
    """Seconds but for batches, and of a batch of each type, never below 0.

    Types whose batches cannot be cut, of one row each, cost what the others do on average.
    """
    whole_s = time(schedule)
    n_of_type = batches_by_type(graph, schedule)
    known: dict[int, float] = {}
    for types in _groups(n_of_type):
        pieces = cut(graph, schedule, types)
        n_more = pieces.n_batches - schedule.n_batches
        if n_more:
            cost_s = max(0.0, (time(pieces) - whole_s) / n_more)
            known |= dict.fromkeys(types, cost_s)
    n_known = sum(n_of_type[t] for t in known)
    mean_s = sum(n_of_type[t] * s for t, s in known.items()) / n_known if n_known else 0.0
    costs = {t: known.get(t, mean_s) for t in range(graph.n_types)}
    batches_s = sum(n * costs[t] for t, n in n_of_type.items())
    return max(0.0, whole_s - batches_s), costs


def _groups(n_of_type: Counter[int]) -> Sequence[Collection[int]]:
    """The types with the most batches by themselves, then all the others."""
    ordered = [t for t, _ in sorted(n_of_type.items(), key=lambda item: (-item[1], item[0]))]
    others = ordered[MOST_CUT_ALONE:]
    return [*([t] for t in ordered[:MOST_CUT_ALONE]), *([others] if others else [])]
