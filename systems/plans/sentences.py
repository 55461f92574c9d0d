"""Rows of words when sentences are computed side by side.

A place is a word's number, counted through all sentences of a mini-batch, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.values.instances import Chain

Ids = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Places of rows, and rows of places.

    along, against (m,): of every row its place when sentences are read forwards and backwards; of
    padding, any of the same sentence. of_along, of_against (n,): of every place its row.
    """

    along: Ids
    against: Ids
    of_along: Ids
    of_against: Ids


@dataclass(frozen=True, slots=True)
class Stairs:
    """Sentences side by side, the longest first, a step after the other and nothing padded.

    widths (T,): rows of every step, which never grow; steps behind the longest sentence have none.
    before (n - widths[0],): of every row behind the first step that of the step before. order (k,):
    of every column its sentence.
    """

    rows: RowOrder
    widths: Ids
    before: Ids
    order: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rectangles:
    """Sentences of similar length in rectangles, a step after the other, padded behind their ends.

    shapes: steps and columns of every rectangle. order (k,): of every column its sentence.
    """

    rows: RowOrder
    shapes: tuple[tuple[int, int], ...]
    order: NDArray[np.int64]


def lengths_of(chains: Sequence[Chain]) -> NDArray[np.int64]:
    """Words of every sentence (k,)."""
    return np.array([chain.n_words for chain in chains], dtype=np.int64)


def rounded_up(n: int, multiple: int) -> int:
    """The least multiple that is not less than n."""
    return -(-n // multiple) * multiple


def stairs(lengths: NDArray[np.int64], round_up_to: int = 1) -> Stairs:
    """Put sentences of these lengths, none of them 0, side by side; steps are rounded up."""
    order = np.argsort(-lengths, kind="stable")
    ordered = lengths[order]
    n_steps = rounded_up(int(ordered[0]), round_up_to)
    widths = np.searchsorted(-ordered, -np.arange(n_steps), side="left")
    starts = np.cumsum(widths) - widths
    step = np.repeat(np.arange(n_steps), widths)
    column = np.arange(widths.sum()) - starts[step]
    ends = np.cumsum(lengths)[order][column]
    along, against = ends - ordered[column] + step, ends - 1 - step
    later = slice(widths[0], None)
    before = starts[step[later] - 1] + column[later]
    rows = RowOrder(_ids(along), _ids(against), _inverse(along), _inverse(against))
    return Stairs(rows, _ids(widths), _ids(before), order)


def rectangles(lengths: NDArray[np.int64], n_buckets: int, round_up_to: int) -> Rectangles:
    """Put sentences of these lengths, none of them 0, in as many rectangles at most."""
    starts = np.cumsum(lengths) - lengths
    places, mirrored, shapes, real = [], [], [], []
    in_order = np.argsort(-lengths, kind="stable")
    for chosen in np.array_split(in_order, min(n_buckets, len(in_order))):
        n_steps = rounded_up(int(lengths[chosen[0]]), round_up_to)
        step = np.arange(n_steps)[:, None]
        last = lengths[chosen] - 1
        places.append((starts[chosen] + np.minimum(step, last)).ravel())
        mirrored.append((starts[chosen] + np.maximum(last - step, 0)).ravel())
        real.append((step <= last).ravel())
        shapes.append((n_steps, len(chosen)))
    filled = np.flatnonzero(np.concatenate(real))
    along, against = np.concatenate(places), np.concatenate(mirrored)
    rows = RowOrder(_ids(along), _ids(against), _back(along, filled), _back(against, filled))
    return Rectangles(rows, tuple(shapes), in_order)


def _inverse(permutation: NDArray[np.int64]) -> Ids:
    return _back(permutation, np.arange(len(permutation)))


def _back(places: NDArray[np.int64], filled: NDArray[np.int64]) -> Ids:
    rows = np.empty(len(filled), np.int32)
    rows[places[filled]] = filled
    return rows


def _ids(values: NDArray[np.int64]) -> Ids:
    return values.astype(np.int32)
