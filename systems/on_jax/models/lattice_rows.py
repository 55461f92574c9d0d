"""Rows of a mini-batch of lattices, padded to the sizes that a program is compiled for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.values.instances import Lattice
from dynbatch.systems.on_jax.models.tree_rows import UNIT
from dynbatch.systems.on_jax.scan import pad_vector, round_up, scatter_values
from dynbatch.systems.plans.lattices import plan_lattice_rows

Ids = NDArray[np.int64]


class LatticeSizes(NamedTuple):
    """Sizes that a program is compiled for.

    Attributes:
        widths: characters of a step, the widest first; the number of steps of each width is data.
        chunks: words that are computed together, the most first, each a multiple of the next; the
            number of chunks of each size is data.
        n_rows: number of rows of all steps, rounded up, and at least one more than they have.
        n_words: number of rows of words, rounded up.
    """

    widths: tuple[int, ...]
    chunks: tuple[int, ...]
    n_rows: int
    n_words: int


class PaddedLattices(NamedTuple):
    """Sizes and index vectors (see `pad_lattices`), and the row of every state (n,)."""

    sizes: LatticeSizes
    vectors: dict[str, NDArray[np.integer]]
    rows: Ids


class WordRows(NamedTuple):
    """Rows of words, padded to whole chunks.

    Attributes:
        rows: (n_words,), row of every word in the order of the plan.
        starts: (n_steps,), first row of the words that follow every step.
        counts: (n_steps, n_chunks), number of chunks of each size that follow every step.
        n: number of rows.
    """

    rows: Ids
    starts: Ids
    counts: Ids
    n: int


def pad_lattices(
    lattices: Sequence[Lattice], n_widths: int, chunks: tuple[int, ...], multiple: int
) -> PaddedLattices:
    """Pad the plan of a mini-batch, whose states have rows: first all starts, then step after step.

    Words are computed after a step instead of before the next one. Those of padding start at the
    first row and end at the last one, which is of no state.

    The vectors are:

    - characters, before (n_rows,): character and previous state of every row after the starts.
    - words, sources, targets (n_words,): words, and the states at which they start and end.
    - labels (widths[0] + n_rows,): -1 for padding.
    - starts (n_steps,): first row of every step.
    - bounds (len(widths) + 1,): first step of every width, and the end.
    - word_starts (n_steps,): first row of the words that follow every step.
    - word_counts (n_steps * len(chunks),): number of chunks of each size that follow every step.

    Args:
        lattices: instances.
        n_widths: maximum number of widths.
        chunks: see LatticeSizes.
        multiple: multiple to which numbers of steps are rounded up; those of rows to twice that.
    """
    plan = plan_lattice_rows(lattices)
    unit = round_up(-(-plan.k // n_widths), UNIT)
    width = round_up(plan.k, unit)
    widths = tuple(range(width, 0, -unit))
    going = np.array(plan.sizes)
    wide = -(-going // unit) * unit
    starts = np.cumsum(wide) - wide
    row_of = np.arange(going.sum()) + np.repeat(starts - np.cumsum(going) + going, going)
    words = _pad_words(plan.batches, plan.word_sizes, chunks)
    n_rows = round_up(int(wide[1:].sum()) + 1, 2 * multiple)
    n_words = round_up(words.n, 2 * multiple)
    n_steps = round_up(len(plan.batches), multiple)
    later, last = row_of[plan.k :] - width, width + n_rows - 1
    vectors = {
        "characters": scatter_values(later, plan.characters, n_rows, 0),
        "before": scatter_values(later, row_of[plan.before], n_rows, 0),
        "words": scatter_values(words.rows, plan.words, n_words, 0),
        "sources": scatter_values(words.rows, row_of[plan.sources], n_words, 0),
        "targets": scatter_values(words.rows, row_of[plan.targets], n_words, last),
        "labels": scatter_values(row_of, plan.labels, width + n_rows, -1),
        "starts": pad_vector(starts[1:], n_steps, 0),
        "bounds": np.append(np.searchsorted(-wide[1:], -np.array(widths)), len(plan.batches)),
        "word_starts": pad_vector(words.starts, n_steps, 0),
        "word_counts": pad_vector(words.counts.ravel(), n_steps * len(chunks), 0),
    }
    rows = np.empty_like(row_of)
    rows[plan.order] = row_of
    return PaddedLattices(LatticeSizes(widths, chunks, n_rows, n_words), vectors, rows)


def _pad_words(
    batches: Sequence[int | None], word_sizes: Sequence[int], chunks: tuple[int, ...]
) -> WordRows:
    """Pad every batch of words to whole chunks, the larger ones first.

    No words precede the first step, because a word has at least two characters.
    """
    following = [*batches[1:], None]
    n_words = np.array([0 if batch is None else word_sizes[batch] for batch in following])
    rest = -(-n_words // chunks[-1]) * chunks[-1]
    counts = np.empty((len(batches), len(chunks)), np.int64)
    for index, chunk in enumerate(chunks):
        counts[:, index], rest = np.divmod(rest, chunk)
    wide = counts @ np.array(chunks)
    starts = np.cumsum(wide) - wide
    rows = np.arange(n_words.sum()) + np.repeat(starts - np.cumsum(n_words) + n_words, n_words)
    return WordRows(rows, starts, counts, int(wide.sum()))
