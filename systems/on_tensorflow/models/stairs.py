"""Steps without padding, of several kinds in one mini-batch: tokens and decisions, say."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.systems.on_tensorflow.layers import StepOrder
from dynbatch.systems.on_tensorflow.runtime import Feeds, Network
from dynbatch.systems.on_tensorflow.sentences import NONE, Batch, SentenceLayout, Shrinking
from dynbatch.systems.plans.sentences import plan_stairs


class Steps(NamedTuple):
    """Int32 arrays of Stairs and their rows, see dynbatch.systems.plans.sentences.

    Attributes:
        along: (n,), place of every row.
        against: (n,), the same when sentences are read backwards.
        of_along: (n,), row of every place.
        of_against: (n,), the same when sentences are read backwards.
        widths: (T,), rows of every step.
        before: row of the previous step, for every row after the first step.
    """

    along: Any
    against: Any
    of_along: Any
    of_against: Any
    widths: Any
    before: Any


def lay_out_steps(lengths: NDArray[np.int64], unrolled: int | None) -> Steps:
    """Lay out sentences of these lengths; `unrolled` is that of Shrinking."""
    plan = plan_stairs(lengths, unrolled or 1)
    rows = plan.rows
    return Steps(rows.along, rows.against, rows.of_along, rows.of_against, plan.widths, plan.before)


class StepsNetwork(Network):
    """Base class of networks that run along steps without padding.

    Attributes:
        unrolled: fields of the feed whose steps are unrolled by tf_static.

    Raises:
        UnsupportedTrial: The layout is padded.
    """

    unrolled: ClassVar[Sequence[str]]

    def __init__(self, model: Model, way: SentenceLayout) -> None:
        if not isinstance(way, Shrinking):
            raise UnsupportedTrial(
                f"{model.name} has no padded layout in TensorFlow; use system=tf_static or"
                " system=tf_dynamic"
            )
        self.way = way

    @abstractmethod
    def construct(self, instances: Sequence[Any]) -> Feeds:
        """Return one feed, whose Steps have any length."""

    def make_specs(self, feeds: Feeds) -> tuple[Any, ...]:
        """Return specs for any length, but a fixed number of steps along sentences if unrolled."""
        (feed,) = feeds
        free = tf.nest.map_structure(
            lambda ids: tf.TensorSpec([None, *ids.shape[1:]], tf.int32), feed
        )
        if self.way.unrolled is None:
            return (free,)
        for name in self.unrolled:
            steps, fixed = getattr(free, name), len(getattr(feed, name).widths)
            free = free._replace(**{name: steps._replace(widths=tf.TensorSpec([fixed], tf.int32))})
        return (free,)

    def make_steps(self, steps: Steps) -> StepOrder:
        batch = Batch((), (), NONE, NONE, NONE, NONE, steps.widths, steps.before)
        return self.way.make_steps(batch)


def make_steps_array(n_steps: Any, width: int) -> Any:
    """Return a TensorArray of the rows of every step (rows, width), whose number may differ."""
    return tf.TensorArray(tf.float32, n_steps, element_shape=(None, width), infer_shape=False)


def score_step(scores: Any, labels: Any) -> tuple[Any, Any]:
    """Return the summed negative log likelihood of a step's labels, and the softmax of scores."""
    share = tf.nn.softmax(scores)
    right = tf.gather(scores, labels, batch_dims=1)
    total = tf.reduce_max(scores, 1) - tf.math.log(tf.reduce_max(share, 1))
    return tf.reduce_sum(total - right), share


def subtract_right(shares: Any, labels: Any) -> Any:
    """Return the gradient of the scores of all rows: the softmax, less 1 at the labels."""
    at_labels = tf.stack([tf.range(tf.shape(labels)[0]), labels], axis=1)
    return tf.tensor_scatter_nd_sub(shares, at_labels, tf.ones_like(labels, tf.float32))
