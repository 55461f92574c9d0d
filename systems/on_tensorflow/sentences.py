"""Mini-batches of sentences as arrays, and how LSTMs run along them."""

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
READ_ROWS_UP_TO = 64  # rows of the output layer are rounded up to a multiple, where they are padded
LayerWeights = tuple[Any, Any, Any]  # W, U, b
Start = tuple[Any, Any]  # h_0, c_0
Layer = Callable[[Any, LayerWeights, Start | None], Any]  # h of every row, of rows


class Batch(NamedTuple):
    """A mini-batch; arrays outside a program, tensors inside, all of whole numbers.

    along, against: words by row, of each rectangle (steps, columns), or of all stairs (n,).
    labels (r,): of the rows that are classified; -1: of padding. in_along, in_against (r,): where
    they stand; without in_along in the order of rows. back: places to their order; empty: it is
    that of places. widths, before: see Stairs; empty where there are rectangles.
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
    """How sentences lie side by side, and how a program steps along them."""

    @abstractmethod
    def batch(self, chains: Sequence[Chain]) -> Batch:
        """Arrays of a mini-batch."""

    @abstractmethod
    def specs(self, batch: Batch) -> Batch:
        """tf.TensorSpec of every array, for the trace that serves this mini-batch."""

    @abstractmethod
    def layers(self, batch: Batch) -> list[Layer]:
        """What computes a layer, for each array of words."""

    @abstractmethod
    def read_along(self, batch: Batch, h: Any) -> Any:
        """Of rows those that are classified."""

    def run(
        self,
        batch: Batch,
        words: Sequence[Any],
        table: Any,
        layers: Sequence[tuple[LayerWeights, Start | None]],
    ) -> Any:
        """h of the top layer at every row, of words that are looked up."""
        found = []
        for some, layer in zip(words, self.layers(batch), strict=True):
            rows = tf.nn.embedding_lookup(table, tf.reshape(some, [-1]))
            for weights, start in layers:
                rows = layer(rows, weights, start)
            found.append(rows)
        return tf.concat(found, 0) if len(found) > 1 else found[0]


@dataclass(frozen=True)
class Shrinking(Way):
    """Nothing is padded: a step has the sentences that still go on, the longest first.

    unrolled: the number of steps is rounded up to a multiple of this, and each such number has a
    trace; None: a while loop, in one trace for all.
    """

    unrolled: int | None

    def batch(self, chains: Sequence[Chain]) -> Batch:
        """Stairs."""
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
        """Of any length, but for the number of steps that are unrolled."""
        free: Batch = tf.nest.map_structure(lambda _: tf.TensorSpec([None], tf.int32), batch)
        n_steps = None if self.unrolled is None else len(batch.widths)
        return free._replace(widths=tf.TensorSpec([n_steps], tf.int32))

    def layers(self, batch: Batch) -> list[Layer]:
        """One along all stairs."""
        return [along(self.steps(batch))]

    @abstractmethod
    def steps(self, batch: Batch) -> StepOrder:
        """How its steps follow one another."""

    def read_along(self, batch: Batch, h: Any) -> Any:
        """All rows are words."""
        return h


@dataclass(frozen=True)
class Padded(Way):
    """Rectangles, so that all shapes are known when a program is traced, as XLA needs it.

    Nothing is read behind the end of a sentence, so that no masks are needed in steps.
    """

    n_buckets: int
    round_up_to: int

    def batch(self, chains: Sequence[Chain]) -> Batch:
        """Rectangles."""
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
        """Of these very shapes."""
        found: Batch = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, tf.int32), batch)
        return found

    def layers(self, batch: Batch) -> list[Layer]:
        """One for each rectangle."""
        return [self.layer_of(*words.shape) for words in batch.along]

    @abstractmethod
    def layer_of(self, n_steps: int, width: int) -> Layer:
        """What computes a layer of a rectangle."""

    def read_along(self, batch: Batch, h: Any) -> Any:
        """The words; and the first row for what is padded."""
        return tf.gather(h, batch.in_along)


def along(steps: StepOrder) -> Layer:
    """Return what computes a layer along steps."""
    return lambda rows, weights, start: lstm_layer(rows, weights, start, steps)


def in_canonical_order(rows: Any, labels: Any, back: Any) -> Any:
    """Rows of places, of rows that are classified."""
    found = tf.boolean_mask(rows, labels >= 0)
    return tf.gather(found, back) if len(back) else found


def _joined(chains: Sequence[Chain]) -> tuple[Ids, Ids]:
    """Words and labels by place."""
    columns = ([c.words for c in chains], [c.labels for c in chains])
    words, labels = (np.concatenate(column, dtype=np.int32) for column in columns)
    return words, labels


def _cut(ids: Ids, shapes: Sequence[tuple[int, int]]) -> tuple[Ids, ...]:
    ends = np.cumsum([n * k for n, k in shapes])
    parts = np.split(ids, ends[:-1])
    return tuple(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
