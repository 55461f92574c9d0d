"""Sentences side by side, the longest first, in rectangles that get narrower: made with NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.values.instances import Chain
from systems.on_jax.parts.plan import Ids, Plan, padded, planned, rounded_up

UNIT = 8  # columns: no product of fewer rows is faster


class ColumnSizes(NamedTuple):
    """Sizes that a program is compiled for.

    widths: columns of the rectangles, the widest first; how many steps each has is no size but
    data, so that any lengths do. n_rows: of all steps. n_words: all of the mini-batch. Both are
    rounded up.
    """

    widths: tuple[int, ...]
    n_rows: int
    n_words: int


class Columns(NamedTuple):
    """Sizes and index vectors (see `vectors`) of a mini-batch of sentences."""

    sizes: ColumnSizes
    vectors: dict[str, NDArray[np.integer]]


def columns_of(chains: Sequence[Chain], n_widths: int, multiple: int, *, both_ways: bool) -> Plan:
    """Columns of the sentences, and words and labels by place (of padding, 0 and -1)."""
    lengths = np.array([chain.n_words for chain in chains], dtype=np.int64)
    sizes, vectors = columns(lengths, n_widths, multiple)
    used = {name: v for name, v in vectors.items() if both_ways or "mirrored" not in name}
    words = np.concatenate([chain.words for chain in chains])
    labels = np.concatenate([chain.labels for chain in chains])
    used["words"] = padded(words, sizes.n_words, 0)
    used["labels"] = padded(labels, sizes.n_words, -1)
    return planned(sizes, slice(len(words)), used)


def columns(lengths: Ids, n_widths: int, multiple: int) -> Columns:
    """Lay sentences of these lengths, none of them 0, side by side.

    A step's width is that of the sentences that are still going on, rounded up to one of n_widths.
    multiple: what rows and words are rounded up to.

    Vectors: places, mirrored (n_rows,): the word of every row, read forwards and backwards (of
    padding, the last). rows, mirrored_rows (n_words,): the row of every word (of padding, the last,
    to which no gradient flows). before (n_rows,): rows of the states before, where the first states
    (widths[0],) come first. starts (n_steps,): first row of every step. bounds (len(widths) + 1,):
    first step of every rectangle, and the end.
    """
    k, n = len(lengths), int(lengths.sum())
    unit = rounded_up(-(-k // n_widths), UNIT)
    width = rounded_up(k, unit)
    widths = tuple(range(width, 0, -unit))
    order = np.argsort(-lengths, kind="stable")
    ordered = lengths[order]
    going = np.searchsorted(-ordered, -np.arange(ordered[0]), side="left")  # sentences of each step
    wide = -(-going // unit) * unit
    starts = np.cumsum(wide) - wide
    n_rows, n_words = rounded_up(int(wide.sum()), 4 * multiple), rounded_up(n, multiple)
    step = np.repeat(np.arange(len(going)), going)
    column = np.arange(n) - np.repeat(np.cumsum(going) - going, going)
    row = starts[step] + column
    ends = np.cumsum(lengths)[order][column]
    along, against = ends - ordered[column] + step, ends - 1 - step
    earlier = np.concatenate([[0], width + starts[:-1]])[step] + column
    return Columns(
        ColumnSizes(widths, n_rows, n_words),
        {
            "places": _scattered(row, along, n_rows, n_words - 1),
            "mirrored": _scattered(row, against, n_rows, n_words - 1),
            "rows": _scattered(along, row, n_words, n_rows - 1),
            "mirrored_rows": _scattered(against, row, n_words, n_rows - 1),
            "before": _scattered(row, earlier, n_rows, 0),
            "starts": padded(starts, rounded_up(len(starts), multiple), 0),
            "bounds": np.append(np.searchsorted(-wide, -np.array(widths)), len(wide)),
        },
    )


def _scattered(at: Ids, values: Ids, n: int, rest: int) -> NDArray[np.int32]:
    found = np.full(n, rest, dtype=np.int32)
    found[at] = values
    return found
