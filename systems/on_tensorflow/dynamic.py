"""TensorFlow with sentences in a loop: a tf.while_loop over steps inside one tf.function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from dynbatch.systems.on_tensorflow.layers import Gates, StepOrder, step, step_back
from dynbatch.systems.on_tensorflow.sentences import (
    Layer,
    Padded,
    SentenceLayout,
    Shrinking,
    make_layer_along,
)
from dynbatch.systems.on_tensorflow.static import Adapter as StaticAdapter

ANY = tf.TensorShape(None)
SCALAR = tf.TensorShape([])


class Adapter(StaticAdapter):
    """Adapter with one trace for all mini-batches, or with XLA one per combination of shapes."""

    def _make_layout(self) -> SentenceLayout:
        options = self.options
        if options.layout == "padded":
            return PaddedLooped(options.buckets, options.round_up_to)
        return ShrinkingLooped(None)


class ShrinkingLooped(Shrinking):
    """Steps in a while loop, over the sentences that have not ended."""

    def make_steps(self, widths: Any, before: Any) -> StepOrder:
        return Looped(tf.size(widths), widths, before)


class PaddedLooped(Padded):
    """Steps of each rectangle in a while loop."""

    def make_layer(self, n_steps: int, width: int) -> Layer:
        return make_layer_along(Looped(n_steps, width))


@dataclass(frozen=True)
class Looped(StepOrder):
    """Loop with one iteration per step, over the sentences that have not ended.

    Attributes:
        n_steps: number of steps.
        widths: (T,), rows of every step, which never increase; or one number for all steps, with
            shapes that are static in the trace.
        places: rows of the previous step; None if all steps have the same width.
    """

    n_steps: Any
    widths: Any
    places: Any | None = None

    def run_forward(self, a: Any, U: Any, first: Any, c_0: Any) -> tuple[Any, list[Any]]:
        h = U.shape[0]
        steps, after = self._split_steps(a, 4 * h), self._count_continuing()

        def run_step(t: Any, recurrent: Any, c: Any, kept: list[Any]) -> tuple[Any, ...]:
            h, c, gates = step(steps.read(t) + recurrent, c)
            kept = [array.write(t, rows) for array, rows in zip(kept, (h, *gates), strict=True)]
            if after is not None:
                h, c = h[: after[t]], c[: after[t]]
            return t + 1, tf.matmul(h, U), c, kept

        kept = [self.make_array(h) for _ in range(1 + len(Gates._fields))]
        *_, (hidden, *saved) = tf.while_loop(
            lambda t, *_: t < self.n_steps,
            run_step,
            (0, first, c_0, kept),
            shape_invariants=self._make_shape_invariants(4 * h, h, [ANY] * len(kept)),
            maximum_iterations=self.n_steps,
        )
        return self._join_steps(hidden, h), saved

    def compute_cells(self, saved: list[Any]) -> Any:
        gates = Gates(*(self._join_steps(array, array.element_shape[-1]) for array in saved))
        return gates.f * gates.c_before + gates.i * gates.g

    def run_backward(
        self, dh: Any, U: Any, saved: list[Any], dcells: Any | None
    ) -> tuple[Any, Any]:
        h = U.shape[0]
        steps, after = self._split_steps(dh, h), self._count_continuing()
        added = None if dcells is None else self._split_steps(dcells, h)

        def run_step(t: Any, dh: Any, dc: Any, da: Any) -> tuple[Any, ...]:
            if after is not None:
                more = [[0, self.widths[t] - after[t]], [0, 0]]
                dh, dc = tf.pad(dh, more), tf.pad(dc, more)
            dc = dc if added is None else dc + added.read(t)
            gates = Gates(*(array.read(t) for array in saved))
            dgates, dc = step_back(gates, steps.read(t) + dh, dc)
            return t - 1, tf.matmul(dgates, U, transpose_b=True), dc, da.write(t, dgates)

        none = tf.zeros((self.widths if after is None else 0, h))
        *_, dc_0, da = tf.while_loop(
            lambda t, *_: t >= 0,
            run_step,
            (self.n_steps - 1, none, none, self.make_array(4 * h)),
            shape_invariants=self._make_shape_invariants(h, h, ANY),
            maximum_iterations=self.n_steps,
        )
        return self._join_steps(da, 4 * h), dc_0

    def get_first_width(self) -> Any:
        return self.widths if self.places is None else self.widths[0]

    def gather_previous(self, h: Any) -> Any:
        """Gather rows of previous steps, or return all but the last step if widths are equal."""
        return h[: -self.widths] if self.places is None else tf.gather(h, self.places)

    def _count_continuing(self) -> Any | None:
        """Return the number of rows of every step that continue; None if all do."""
        return None if self.places is None else tf.concat([self.widths[1:], [0]], 0)

    def _make_shape_invariants(self, first: int, second: int, others: Any) -> Any | None:
        """Return shape invariants of the loop: two tensors of given widths, and others."""
        rows = (tf.TensorShape([None, width]) for width in (first, second))
        return None if self.places is None else (SCALAR, *rows, others)

    def make_array(self, width: int) -> Any:
        """Return a TensorArray of the rows of every step (rows, width)."""
        is_even = self.places is None
        shape = (self.widths if is_even else None, width)
        return tf.TensorArray(
            tf.float32,
            self.n_steps,
            element_shape=shape,
            infer_shape=is_even,
            clear_after_read=False,
        )

    def _split_steps(self, rows: Any, width: int) -> Any:
        if self.places is not None:
            return self.make_array(width).split(rows, self.widths)
        return self.make_array(width).unstack(tf.reshape(rows, (self.n_steps, self.widths, width)))

    def _join_steps(self, array: Any, width: int) -> Any:
        if self.places is not None:
            return array.concat()
        return tf.reshape(array.stack(), (self.n_steps * self.widths, width))
