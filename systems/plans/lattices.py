"""Rows and batches of a mini-batch of lattices.

Characters are a chain: lattices lie side by side, the longest first, a step after the other, and a
step is a batch. Words lie between: one may be computed at any step behind that of the state in
which it begins, up to that of the state in which it ends. It waits until a word ends that nobody
has computed yet; then all words that have begun are a batch. No fewer batches do for these steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from harness.models.parts.lattices import joined_arcs
from harness.values.arrays import IntArray
from harness.values.instances import Lattice
from systems.plans.trees import Ids, inverse


class Step(NamedTuple):
    """Some words, and one character behind them of every lattice that has so many.

    words: number of their batch, None: none. number: of the step; the starts are step 0. joins:
    whether words end at any of the step's states.
    """

    words: int | None
    number: int
    joins: bool


class LatticeRows(NamedTuple):
    """All states in rows, step after step, and all words in the order of computing.

    characters (n - k,): of every row behind the first k, which are the starts of the k lattices.
    words, sources, targets (n_words,): of every word its id, and the rows of the states in which it
    begins and ends. before (n - k,): of every row behind the first k that of the state before it.
    labels (n,): of all rows. order (n,): of every row its state, counted in canonical order.
    sizes, word_sizes: rows of every step, which never grow, and words of every batch.
    """

    characters: IntArray
    words: IntArray
    sources: Ids
    targets: Ids
    before: Ids
    labels: IntArray
    order: Ids
    sizes: list[int]
    word_sizes: list[int]
    steps: list[Step]

    @property
    def k(self) -> int:
        """Lattices."""
        return self.sizes[0]


def lattice_rows(lattices: Sequence[Lattice]) -> LatticeRows:
    """Plan a mini-batch."""
    arcs = joined_arcs(lattices)
    step_of, row_of, starts = _rows([lattice.n_states for lattice in lattices])
    k, order = len(lattices), inverse(row_of)
    is_word = arcs.rank > 0
    characters = np.empty(len(order), np.int32)
    characters[row_of[arcs.target[~is_word]]] = arcs.token[~is_word]
    before = row_of[order[k:] - 1]
    source, target = arcs.source[is_word], arcs.target[is_word]
    newest = np.full(len(starts) - 1, -1)
    np.maximum.at(newest, step_of[target], step_of[source])
    points = batch_points(newest)
    batch = np.searchsorted(points, step_of[source], side="right")
    chosen = np.lexsort((row_of[target], batch))
    return LatticeRows(
        characters=characters[k:],
        words=arcs.token[is_word][chosen],
        sources=row_of[source[chosen]],
        targets=row_of[target[chosen]],
        before=before,
        labels=arcs.tags[order],
        order=order,
        sizes=np.diff(starts).tolist(),
        word_sizes=np.bincount(batch).tolist(),
        steps=_steps(points, newest),
    )


def batch_points(newest: Ids) -> Ids:
    """Steps before whose characters words are computed, as few as possible.

    newest: of every step the last step at which a word begins that ends there, -1: none does. A
    word may be computed at any step behind that in which it begins, up to that in which it ends.
    """
    points, last = [], 0
    for step, begin in enumerate(newest.tolist()):
        if begin >= last:
            points.append(step)
            last = step
    return np.array(points, np.int64)


def _rows(lengths: Sequence[int]) -> tuple[Ids, Ids, Ids]:
    """Of all states in canonical order their steps and rows; the first row of every step."""
    n_states = np.array(lengths)
    longest_first = np.argsort(-n_states, kind="stable")
    sizes = np.searchsorted(-n_states[longest_first], -np.arange(n_states.max()), side="left")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    step_of = np.arange(starts[-1]) - np.repeat(np.cumsum(n_states) - n_states, n_states)
    return step_of, starts[step_of] + np.repeat(inverse(longest_first), n_states), starts


def _steps(points: Ids, newest: Ids) -> list[Step]:
    batches = {point: batch for batch, point in enumerate(points.tolist())}
    joins = (newest >= 0).tolist()
    return [Step(batches.get(number), number, joins[number]) for number in range(1, len(joins))]
