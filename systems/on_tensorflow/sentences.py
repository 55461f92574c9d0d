"""Mini-batches of sentences as arrays, and LSTM layers along them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from dynbatch.harness.values.instances import Chain
from dynbatch.systems.on_tensorflow.layers import StepOrder, run_lstm_layer
from dynbatch.systems.plans.sentences import (
    Ids,
    count_words,
    plan_rectangles,
    plan_stairs,
    round_up,
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


class SentenceLayout(ABC):
    """Arrangement of sentences, and the steps of a program along them."""

    @abstractmethod
    def batch(self, chains: Sequence[Chain]) -> Batch:
        """Return the arrays of a mini-batch."""

    @abstractmethod
    def make_specs(self, batch: Batch) -> Batch:
        """Return the tf.TensorSpec of every array, for the trace that serves this mini-batch."""

    @abstractmethod
    def make_layers(self, batch: Batch) -> list[Layer]:
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
        hidden = []
        for some, layer in zip(words, self.make_layers(batch), strict=True):
            rows = tf.nn.embedding_lookup(table, tf.reshape(some, [-1]))
            for weights, start in layers:
                rows = layer(rows, weights, start)
            hidden.append(rows)
        return tf.concat(hidden, 0) if len(hidden) > 1 else hidden[0]


@dataclass(frozen=True)
class Shrinking(SentenceLayout):
    """Arrangement without padding: a step has the sentences that have not ended, the longest first.

    Attributes:
        unrolled: multiple to which the number of steps is rounded up; each such number has a trace.
            None means a while loop, with one trace for all.
    """

    unrolled: int | None

    def batch(self, chains: Sequence[Chain]) -> Batch:
        plan, _ = plan_stairs(count_words(chains), self.unrolled or 1)
        words, labels = _join_chains(chains)
        return Batch(
            along=(words[plan.along],),
            against=(words[plan.against],),
            labels=labels[plan.along],
            in_along=NONE,
            in_against=plan.of_against[plan.along],
            back=plan.of_along,
            widths=plan.widths,
            before=plan.before,
        )

    def make_specs(self, batch: Batch) -> Batch:
        """Return specs for any length, with a fixed number of steps if they are unrolled."""
        free: Batch = tf.nest.map_structure(lambda _: tf.TensorSpec([None], tf.int32), batch)
        n_steps = None if self.unrolled is None else len(batch.widths)
        return free._replace(widths=tf.TensorSpec([n_steps], tf.int32))

    def make_layers(self, batch: Batch) -> list[Layer]:
        """Return one layer along all stairs."""
        return [make_layer_along(self.make_steps(batch.widths, batch.before))]

    @abstractmethod
    def make_steps(self, widths: Any, before: Any) -> StepOrder:
        """Return the order of steps; for the arguments, see Stairs."""

    def read_along(self, batch: Batch, h: Any) -> Any:
        """Return all rows, because each is a word."""
        return h


@dataclass(frozen=True)
class Padded(SentenceLayout):
    """Arrangement in rectangles with static shapes, as XLA needs them.

    Rows after the end of a sentence are never read, so steps need no masks.
    """

    n_buckets: int
    round_up_to: int

    def batch(self, chains: Sequence[Chain]) -> Batch:
        plan = plan_rectangles(count_words(chains), self.n_buckets, self.round_up_to)
        words, labels = _join_chains(chains)
        more = round_up(len(words), READ_ROWS_UP_TO) - len(words)
        return Batch(
            along=_cut(words[plan.along], plan.shapes),
            against=_cut(words[plan.against], plan.shapes),
            labels=np.pad(labels, (0, more), constant_values=-1),
            in_along=np.pad(plan.of_along, (0, more)),
            in_against=np.pad(plan.of_against, (0, more)),
            back=NONE,
            widths=NONE,
            before=NONE,
        )

    def make_specs(self, batch: Batch) -> Batch:
        """Return specs with exactly these shapes."""
        specs: Batch = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, tf.int32), batch)
        return specs

    def make_layers(self, batch: Batch) -> list[Layer]:
        return [self.make_layer(*rectangle.shape) for rectangle in batch.along]

    @abstractmethod
    def make_layer(self, n_steps: int, width: int) -> Layer:
        """Return a function that computes a layer of a rectangle."""

    def read_along(self, batch: Batch, h: Any) -> Any:
        """Return the rows of words, with the first row for padding."""
        return tf.gather(h, batch.in_along)


def make_layer_along(steps: StepOrder) -> Layer:
    """Return a function that computes a layer along the given steps."""
    return lambda rows, weights, start: run_lstm_layer(rows, weights, start, steps)[0]


def restore_order(rows: Any, labels: Any, back: Any) -> Any:
    """Return the rows of words in canonical order, from the classified rows."""
    word_rows = tf.boolean_mask(rows, labels >= 0)
    return tf.gather(word_rows, back) if len(back) else word_rows


def _join_chains(chains: Sequence[Chain]) -> tuple[Ids, Ids]:
    columns = ([c.words for c in chains], [c.labels for c in chains])
    words, labels = (np.concatenate(column, dtype=np.int32) for column in columns)
    return words, labels


def _cut(ids: Ids, shapes: Sequence[tuple[int, int]]) -> tuple[Ids, ...]:
    ends = np.cumsum([n * k for n, k in shapes])
    parts = np.split(ids, ends[:-1])
    return tuple(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
