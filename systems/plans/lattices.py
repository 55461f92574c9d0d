"""Rows and batches of a mini-batch of lattices.

The characters of a lattice form a chain. The chains run in parallel, the longest first: a step is a
batch with the next character of every lattice that has one. A word can be computed at any step
after that of the state at its start, up to that of the state at its end. Words wait until one of
them ends that has not been computed. Then all words that have started form a batch. This is the
minimum number of batches for these steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dynbatch.harness.models.parts.lattices import join_arcs
from dynbatch.harness.values.arrays import IntArray
from dynbatch.harness.values.instances import Lattice
from dynbatch.systems.plans.trees import Ids, invert_permutation


class LatticeRows(NamedTuple):
    """All states in rows, step after step, and all words in the order of computation.

    The first k rows are the starts of the k lattices.

    Attributes:
        characters: (n - k,), character of every row after the first k.
        words: (n_words,), id of every word.
        sources: (n_words,), row of the state at the start of every word.
        targets: (n_words,), row of the state at the end of every word.
        before: (n - k,), row of the previous state, for every row after the first k.
        labels: (n,), labels of all rows.
        order: (n,), state of every row, in canonical order.
        sizes: number of rows of every step, which never increases.
        word_sizes: number of words of every batch.
        batches: index of the batch of words before every step after the first; None for no words.
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
    batches: list[int | None]

    @property
    def k(self) -> int:
        return self.sizes[0]


def plan_lattice_rows(lattices: Sequence[Lattice]) -> LatticeRows:
    arcs = join_arcs(lattices)
    step_of, row_of, starts = _arrange_rows([lattice.n_states for lattice in lattices])
    k, order = len(lattices), invert_permutation(row_of)
    is_word = arcs.rank > 0
    characters = np.empty(len(order), np.int32)
    characters[row_of[arcs.target[~is_word]]] = arcs.token[~is_word]
    before = row_of[order[k:] - 1]
    source, target = arcs.source[is_word], arcs.target[is_word]
    newest = np.full(len(starts) - 1, -1)
    np.maximum.at(newest, step_of[target], step_of[source])
    points = batch_points(newest)
    batch = np.searchsorted(points, step_of[source], side="right")
    index_of = {step: index for index, step in enumerate(points.tolist())}
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
        batches=[index_of.get(step) for step in range(1, len(newest))],
    )


def batch_points(newest: Ids) -> Ids:
    """Return the steps that are preceded by a batch of words, as few as possible.

    A word can be computed at any step after that of its start, up to that of its end.

    Args:
        newest: for every step, the last step at which a word starts that ends there; -1 for none.
    """
    points, last = [], 0
    for step, begin in enumerate(newest.tolist()):
        if begin >= last:
            points.append(step)
            last = step
    return np.array(points, np.int64)


def _arrange_rows(lengths: Sequence[int]) -> tuple[Ids, Ids, Ids]:
    """Return step and row of every state in canonical order, and the first row of every step."""
    n_states = np.array(lengths)
    longest_first = np.argsort(-n_states, kind="stable")
    sizes = np.searchsorted(-n_states[longest_first], -np.arange(n_states.max()), side="left")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    step_of = np.arange(starts[-1]) - np.repeat(np.cumsum(n_states) - n_states, n_states)
    return step_of, starts[step_of] + np.repeat(invert_permutation(longest_first), n_states), starts
