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
        return Looped(tf.size(batch.widths), batch.widths, batch.before)


class PaddedLooped(Padded):
    """Steps in a while loop."""

    def layer_of(self, n_steps: int, width: int) -> Layer:
        """A loop."""
        return along(Looped(n_steps, width))


@dataclass(frozen=True)
class Looped(StepOrder):
    """A turn for every step, over the sentences that still go on.

    widths (T,): rows of every step, which never grow, and places: rows of the step before; or the
    number of rows of all steps, with shapes that are known when the program is traced, and None.
    """

    n_steps: Any
    widths: Any
    places: Any | None = None

    def forwards(self, a: Any, U: Any, first: Any, c_0: Any) -> tuple[Any, list[Any]]:
        """From the first step to the last."""
        h = U.shape[0]
        steps, after = self._cut(a, 4 * h), self._after()

        def turn(t: Any, recurrent: Any, c: Any, kept: list[Any]) -> tuple[Any, ...]:
            h, c, gates = step(steps.read(t) + recurrent, c)
            kept = [array.write(t, rows) for array, rows in zip(kept, (h, *gates), strict=True)]
            if after is not None:
                h, c = h[: after[t]], c[: after[t]]
            return t + 1, tf.matmul(h, U), c, kept

        kept = [self._array(h) for _ in range(1 + len(Gates._fields))]
        *_, (found, *saved) = tf.while_loop(
            lambda t, *_: t < self.n_steps,
            turn,
            (0, first, c_0, kept),
            shape_invariants=self._shapes(4 * h, h, [ANY] * len(kept)),
            maximum_iterations=self.n_steps,
        )
        return self._joined(found, h), saved

    def backwards(self, dh: Any, U: Any, saved: list[Any]) -> tuple[Any, Any]:
        """From the last step to the first."""
        h = U.shape[0]
        steps, after = self._cut(dh, h), self._after()

        def turn(t: Any, dh: Any, dc: Any, da: Any) -> tuple[Any, ...]:
            if after is not None:
                more = [[0, self.widths[t] - after[t]], [0, 0]]
                dh, dc = tf.pad(dh, more), tf.pad(dc, more)
            gates = Gates(*(array.read(t) for array in saved))
            dgates, dc = step_back(gates, steps.read(t) + dh, dc)
            return t - 1, tf.matmul(dgates, U, transpose_b=True), dc, da.write(t, dgates)

        none = tf.zeros((self.widths if after is None else 0, h))
        *_, dc_0, da = tf.while_loop(
            lambda t, *_: t >= 0,
            turn,
            (self.n_steps - 1, none, none, self._array(4 * h)),
            shape_invariants=self._shapes(h, h, ANY),
            maximum_iterations=self.n_steps,
        )
        return self._joined(da, 4 * h), dc_0

    def first_width(self) -> Any:
        """Rows of the first step."""
        return self.widths if self.places is None else self.widths[0]

    def before(self, h: Any) -> Any:
        """A gather, or all but the last step where all are equally wide."""
        return h[: -self.widths] if self.places is None else tf.gather(h, self.places)

    def _after(self) -> Any | None:
        """Rows of every step that go on; None where all do."""
        return None if self.places is None else tf.concat([self.widths[1:], [0]], 0)

    def _shapes(self, first: int, second: int, others: Any) -> Any | None:
        """Shapes that turns keep: of two tensors of these widths, of any rows, and of others."""
        rows = (tf.TensorShape([None, width]) for width in (first, second))
        return None if self.places is None else (SCALAR, *rows, others)

    def _array(self, width: int) -> Any:
        is_even = self.places is None
        shape = (self.widths if is_even else None, width)
        return tf.TensorArray(
            tf.float32,
            self.n_steps,
            element_shape=shape,
            infer_shape=is_even,
            clear_after_read=False,
        )

    def _cut(self, rows: Any, width: int) -> Any:
        """Rows of every step."""
        if self.places is not None:
            return self._array(width).split(rows, self.widths)
        return self._array(width).unstack(tf.reshape(rows, (self.n_steps, self.widths, width)))

    def _joined(self, array: Any, width: int) -> Any:
        if self.places is not None:
            return array.concat()
        return tf.reshape(array.stack(), (self.n_steps * self.widths, width))
