"""TensorFlow with sentences in a loop: a tf.while_loop over steps inside one tf.function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from systems.on_tensorflow.layers import Gates, StepOrder, step, step_back
from systems.on_tensorflow.sentences import Batch, Layer, Padded, Shrinking, Way, along
from systems.on_tensorflow.static import Adapter as StaticAdapter

ANY = tf.TensorShape(None)
SCALAR = tf.TensorShape([])


class Adapter(StaticAdapter):
    """One trace for all mini-batches; where XLA compiles, one for every combination of shapes."""

    def _way(self) -> Way:
        options = self.options
        if options.layout == "padded":
            return PaddedLooped(options.buckets, options.round_up_to)
        return ShrinkingLooped(None)


class ShrinkingLooped(Shrinking):
    """Steps in a while loop, over the sentences that still go on."""

    def steps(self, batch: Batch) -> StepOrder:
        """A loop."""
        return Looped(batch.widths, batch.before)


class PaddedLooped(Padded):
    """Steps in a while loop."""

    def layer_of(self, n_steps: int, width: int) -> Layer:
        """A loop."""
        return along(LoopedEvenly(n_steps, width))


@dataclass(frozen=True)
class Looped(StepOrder):
    """As many turns as there are widths (T,), which never grow; places: rows of the step before."""

    widths: Any
    places: Any

    def forwards(self, a: Any, U: Any, first: Any, c_0: Any) -> tuple[Any, list[Any]]:
        """A turn for every step, over the sentences that still go on."""
        n, h = self._n(), U.shape[0]
        steps = self._array(4 * h).split(a, self.widths)
        after = tf.concat([self.widths[1:], [0]], 0)

        def turn(t: Any, recurrent: Any, c: Any, kept: list[Any]) -> tuple[Any, ...]:
            h, c, gates = step(steps.read(t) + recurrent, c)
            kept = [array.write(t, rows) for array, rows in zip(kept, (h, *gates), strict=True)]
            return t + 1, tf.matmul(h[: after[t]], U), c[: after[t]], kept

        kept = [self._array(h) for _ in range(1 + len(Gates._fields))]
        *_, (found, *saved) = tf.while_loop(
            lambda t, *_: t < n,
            turn,
            (0, first, c_0, kept),
            shape_invariants=(SCALAR, _rows(4 * h), _rows(h), [ANY] * len(kept)),
            maximum_iterations=n,
        )
        return found.concat(), saved

    def backwards(self, dh: Any, U: Any, saved: list[Any]) -> tuple[Any, Any]:
        """From the last step to the first."""
        n, h = self._n(), U.shape[0]
        steps = self._array(h).split(dh, self.widths)
        after = tf.concat([self.widths[1:], [0]], 0)

        def turn(t: Any, dh: Any, dc: Any, da: Any) -> tuple[Any, ...]:
            more = [[0, self.widths[t] - after[t]], [0, 0]]
            gates = Gates(*(array.read(t) for array in saved))
            dgates, dc = step_back(gates, steps.read(t) + tf.pad(dh, more), tf.pad(dc, more))
            return t - 1, tf.matmul(dgates, U, transpose_b=True), dc, da.write(t, dgates)

        none = tf.zeros((0, h))
        *_, dc_0, da = tf.while_loop(
            lambda t, *_: t >= 0,
            turn,
            (n - 1, none, none, self._array(4 * h)),
            shape_invariants=(SCALAR, _rows(h), _rows(h), ANY),
            maximum_iterations=n,
        )
        return da.concat(), dc_0

    def first_width(self) -> Any:
        """Rows of the first step."""
        return self.widths[0]

    def before(self, h: Any) -> Any:
        """A gather."""
        return tf.gather(h, self.places)

    def _n(self) -> Any:
        return tf.size(self.widths)

    def _array(self, width: int) -> Any:
        return tf.TensorArray(
            tf.float32,
            self._n(),
            element_shape=(None, width),
            infer_shape=False,
            clear_after_read=False,
        )


def _rows(width: int) -> Any:
    return tf.TensorShape([None, width])


@dataclass(frozen=True)
class LoopedEvenly(StepOrder):
    """n_steps turns over k rows each, shapes that are known when the program is traced."""

    n_steps: int
    k: int

    def forwards(self, a: Any, U: Any, first: Any, c_0: Any) -> tuple[Any, list[Any]]:
        """A turn for every step."""
        h = U.shape[0]
        steps = self._array(4 * h).unstack(tf.reshape(a, (self.n_steps, self.k, 4 * h)))

        def turn(t: Any, recurrent: Any, c: Any, kept: list[Any]) -> tuple[Any, ...]:
            h, c, gates = step(steps.read(t) + recurrent, c)
            kept = [array.write(t, rows) for array, rows in zip(kept, (h, *gates), strict=True)]
            return t + 1, tf.matmul(h, U), c, kept

        kept = [self._array(h) for _ in range(1 + len(Gates._fields))]
        *_, (found, *saved) = tf.while_loop(
            lambda t, *_: t < self.n_steps,
            turn,
            (0, first, c_0, kept),
            maximum_iterations=self.n_steps,
        )
        return self._joined(found, h), saved

    def backwards(self, dh: Any, U: Any, saved: list[Any]) -> tuple[Any, Any]:
        """From the last step to the first."""
        h = U.shape[0]
        steps = self._array(h).unstack(tf.reshape(dh, (self.n_steps, self.k, h)))

        def turn(t: Any, dh: Any, dc: Any, da: Any) -> tuple[Any, ...]:
            gates = Gates(*(array.read(t) for array in saved))
            dgates, dc = step_back(gates, steps.read(t) + dh, dc)
            return t - 1, tf.matmul(dgates, U, transpose_b=True), dc, da.write(t, dgates)

        zeros = tf.zeros((self.k, h))
        *_, dc_0, da = tf.while_loop(
            lambda t, *_: t >= 0,
            turn,
            (self.n_steps - 1, zeros, zeros, self._array(4 * h)),
            maximum_iterations=self.n_steps,
        )
        return self._joined(da, 4 * h), dc_0

    def first_width(self) -> Any:
        """Rows of every step."""
        return self.k

    def before(self, h: Any) -> Any:
        """All but the last step."""
        return h[: -self.k]

    def _array(self, width: int) -> Any:
        shape = (self.k, width)
        return tf.TensorArray(tf.float32, self.n_steps, element_shape=shape, clear_after_read=False)

    def _joined(self, array: Any, width: int) -> Any:
        return tf.reshape(array.stack(), (self.n_steps * self.k, width))
