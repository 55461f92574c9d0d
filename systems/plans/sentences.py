"""Rows of words for sentences that are computed in parallel.

A place is the index of a word in the concatenated sentences of a mini-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.values.instances import Chain

Ids = NDArray[np.int32]
Lengths = NDArray[np.integer]  # numbers of words of sentences, none of them 0
Order = NDArray[np.int64]  # (k,), sentence of every column


class Stairs(NamedTuple):
    """Sentences in parallel, the longest first, step after step, without padding.

    Attributes:
        along: (n,), place of every row when sentences are read forwards.
        against: (n,), the same when sentences are read backwards.
        of_along: (n,), row of every place when sentences are read forwards.
        of_against: (n,), the same when sentences are read backwards.
        widths: (T,), number of rows of every step, which never increases; steps after the end of
            the longest sentence have none.
        before: (n - widths[0],), row of the previous step, for every row after the first step.
    """

    along: Ids
    against: Ids
    of_along: Ids
    of_against: Ids
    widths: Ids
    before: Ids


class Rectangles(NamedTuple):
    """Sentences of similar length in rectangles, step after step, padded after their ends.

    Attributes:
        along: (m,), see Stairs; for padding, any place of the same sentence.
        against: (m,), the same when sentences are read backwards.
        of_along: (n,), see Stairs.
        of_against: (n,), see Stairs.
        shapes: number of steps and columns of every rectangle.
        order: sentence of every column.
    """

    along: Ids
    against: Ids
    of_along: Ids
    of_against: Ids
    shapes: tuple[tuple[int, int], ...]
    order: Order


def count_words(chains: Sequence[Chain]) -> NDArray[np.int64]:
    return np.array([chain.n_words for chain in chains], dtype=np.int64)


def round_up(n: int, multiple: int) -> int:
    """Return the smallest multiple that is at least n."""
    return -(-n // multiple) * multiple


def plan_stairs(lengths: Lengths, round_up_to: int = 1) -> tuple[Stairs, Order]:
    """Arrange sentences of these lengths in stairs; steps are rounded up.

    Returns:
        The stairs, and the sentence of every column.
    """
    order = np.argsort(-lengths, kind="stable")
    ordered = lengths[order]
    n_steps = round_up(int(ordered[0]), round_up_to)
    widths = np.searchsorted(-ordered, -np.arange(n_steps), side="left")
    starts = np.cumsum(widths) - widths
    step = np.repeat(np.arange(n_steps), widths)
    column = np.arange(widths.sum()) - starts[step]
    ends = np.cumsum(lengths)[order][column]
    along, against = ends - ordered[column] + step, ends - 1 - step
    later = slice(widths[0], None)
    before = starts[step[later] - 1] + column[later]
    every_row = np.arange(len(along))
    rows = _to_ids(along), _to_ids(against), _invert(along, every_row), _invert(against, every_row)
    return Stairs(*rows, _to_ids(widths), _to_ids(before)), order


def plan_rectangles(lengths: Lengths, n_buckets: int, round_up_to: int) -> Rectangles:
    """Arrange sentences of these lengths in at most n_buckets rectangles."""
    starts = np.cumsum(lengths) - lengths
    places, mirrored, shapes, real = [], [], [], []
    in_order = np.argsort(-lengths, kind="stable")
    for chosen in np.array_split(in_order, min(n_buckets, len(in_order))):
        n_steps = round_up(int(lengths[chosen[0]]), round_up_to)
        step = np.arange(n_steps)[:, None]
        last = lengths[chosen] - 1
        places.append((starts[chosen] + np.minimum(step, last)).ravel())
        mirrored.append((starts[chosen] + np.maximum(last - step, 0)).ravel())
        real.append((step <= last).ravel())
        shapes.append((n_steps, len(chosen)))
    filled = np.flatnonzero(np.concatenate(real))
    along, against = np.concatenate(places), np.concatenate(mirrored)
    rows = _to_ids(along), _to_ids(against), _invert(along, filled), _invert(against, filled)
    return Rectangles(*rows, tuple(shapes), in_order)


def _invert(places: NDArray[np.int64], filled: NDArray[np.int64]) -> Ids:
    rows = np.empty(len(filled), np.int32)
    rows[places[filled]] = filled
    return rows


def _to_ids(values: NDArray[np.int64]) -> Ids:
    return values.astype(np.int32)
