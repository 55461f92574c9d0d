"""Mini-batches of sentences as arrays, and LSTM layers along them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from harness.values.instances import Chain
from systems.on_tensorflow.layers import StepOrder, lstm_layer
from systems.plans.sentences import (
    Ids,
    lengths_of,
    rectangles,
    rounded_up,
    stairs,
)

NONE = np.zeros(0, np.int32)
READ_ROWS_UP_TO = 64  # multiple for the rows of the output layer, if they are padded
LayerWeights = tuple[Any, Any, Any]  # W, U, b
Start = tuple[Any, Any]  # h_0, c_0
Layer = Callable[[Any, LayerWeights, Start | None], Any]  # returns h of every row


class Batch(NamedTuple):
    """A mini-batch of int32 arrays, which are tensors inside a program.

    Attributes:
        along: words by row, for each rectangle (steps, columns), or (n,) for the stairs.
        against: the same with sentences read backwards.
        labels: (r,), labels of the classified rows; -1 for padding.
        in_along: (r,), their indices in `along`; empty if all rows are classified in order.
        in_against: (r,), their indices in `against`.
        back: permutation that restores the order of places; empty if they are in order.
        widths: see Stairs; empty for rectangles.
        before: see Stairs; empty for rectangles.
    """

    along: tuple[Any, ...]
    against: tuple[Any, ...]
    labels: Any
    in_along: Any
    in_against: Any
    back: Any
    widths: Any
    before: Any


class Way(ABC):
    """Arrangement of sentences, and the steps of a program along them."""

    @abstractmethod
    def batch(self, chains: Sequence[Chain]) -> Batch:
        """Return the arrays of a mini-batch."""

    @abstractmethod
    def specs(self, batch: Batch) -> Batch:
        """Return the tf.TensorSpec of every array, for the trace that serves this mini-batch."""

    @abstractmethod
    def layers(self, batch: Batch) -> list[Layer]:
        """Return functions that compute a layer, one for each array of words."""

    @abstractmethod
    def read_along(self, batch: Batch, h: Any) -> Any:
        """Return the rows that are classified."""

    def run(
        self,
        batch: Batch,
        words: Sequence[Any],
        table: Any,
        layers: Sequence[tuple[LayerWeights, Start | None]],
    ) -> Any:
        """Look up words, and return h of the top layer at every row."""
        found = []
        for some, layer in zip(words, self.layers(batch), strict=True):
            rows = tf.nn.embedding_lookup(table, tf.reshape(some, [-1]))
            for weights, start in layers:
                rows = layer(rows, weights, start)
            found.append(rows)
        return tf.concat(found, 0) if len(found) > 1 else found[0]


@dataclass(frozen=True)
class Shrinking(Way):
    """Arrangement without padding: a step has the sentences that have not ended, the longest first.

    Attributes:
        unrolled: multiple to which the number of steps is rounded up; each such number has a trace.
            None means a while loop, with one trace for all.
    """

    unrolled: int | None

    def batch(self, chains: Sequence[Chain]) -> Batch:
        """Return stairs."""
        plan = stairs(lengths_of(chains), self.unrolled or 1)
        words, labels = _joined(chains)
        rows = plan.rows
        return Batch(
            along=(words[rows.along],),
            against=(words[rows.against],),
            labels=labels[rows.along],
            in_along=NONE,
            in_against=rows.of_against[rows.along],
            back=rows.of_along,
            widths=plan.widths,
            before=plan.before,
        )

    def specs(self, batch: Batch) -> Batch:
        """Return specs for any length, with a fixed number of steps if they are unrolled."""
        free: Batch = tf.nest.map_structure(lambda _: tf.TensorSpec([None], tf.int32), batch)
        n_steps = None if self.unrolled is None else len(batch.widths)
        return free._replace(widths=tf.TensorSpec([n_steps], tf.int32))

    def layers(self, batch: Batch) -> list[Layer]:
        """Return one layer along all stairs."""
        return [along(self.steps(batch))]

    @abstractmethod
    def steps(self, batch: Batch) -> StepOrder:
        """Return the order of steps."""

    def read_along(self, batch: Batch, h: Any) -> Any:
        """Return all rows, because each is a word."""
        return h


@dataclass(frozen=True)
class Padded(Way):
    """Arrangement in rectangles with static shapes, as XLA needs them.

    Rows after the end of a sentence are never read, so steps need no masks.
    """

    n_buckets: int
    round_up_to: int

    def batch(self, chains: Sequence[Chain]) -> Batch:
        """Return rectangles."""
        plan = rectangles(lengths_of(chains), self.n_buckets, self.round_up_to)
        words, labels = _joined(chains)
        more = rounded_up(len(words), READ_ROWS_UP_TO) - len(words)
        return Batch(
            along=_cut(words[plan.rows.along], plan.shapes),
            against=_cut(words[plan.rows.against], plan.shapes),
            labels=np.pad(labels, (0, more), constant_values=-1),
            in_along=np.pad(plan.rows.of_along, (0, more)),
            in_against=np.pad(plan.rows.of_against, (0, more)),
            back=NONE,
            widths=NONE,
            before=NONE,
        )

    def specs(self, batch: Batch) -> Batch:
        """Return specs with exactly these shapes."""
        found: Batch = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, tf.int32), batch)
        return found

    def layers(self, batch: Batch) -> list[Layer]:
        """Return one layer per rectangle."""
        return [self.layer_of(*words.shape) for words in batch.along]

    @abstractmethod
    def layer_of(self, n_steps: int, width: int) -> Layer:
        """Return a function that computes a layer of a rectangle."""

    def read_along(self, batch: Batch, h: Any) -> Any:
        """Return the rows of words, with the first row for padding."""
        return tf.gather(h, batch.in_along)


def along(steps: StepOrder) -> Layer:
    """Return a function that computes a layer along the given steps."""
    return lambda rows, weights, start: lstm_layer(rows, weights, start, steps)


def in_canonical_order(rows: Any, labels: Any, back: Any) -> Any:
    """Return the rows of words in canonical order, from the classified rows."""
    found = tf.boolean_mask(rows, labels >= 0)
    return tf.gather(found, back) if len(back) else found


def _joined(chains: Sequence[Chain]) -> tuple[Ids, Ids]:
    """Return words and labels by place."""
    columns = ([c.words for c in chains], [c.labels for c in chains])
    words, labels = (np.concatenate(column, dtype=np.int32) for column in columns)
    return words, labels


def _cut(ids: Ids, shapes: Sequence[tuple[int, int]]) -> tuple[Ids, ...]:
    ends = np.cumsum([n * k for n, k in shapes])
    parts = np.split(ids, ends[:-1])
    return tuple(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
