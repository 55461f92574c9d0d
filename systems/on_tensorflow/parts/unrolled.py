"""Steps unrolled in Python: a graph with operations of its own for every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from systems.on_tensorflow.parts.lstm import Gates, Recurrence, step, step_back


@dataclass(frozen=True)
class Unrolled(Recurrence):
    """As many steps as there are widths: numbers (padded), or scalar tensors that never grow.

    places: rows of the step before; None where all steps are equally wide.
    """

    widths: Sequence[Any]
    places: Any | None = None

    def forwards(self, a: Any, U: Any, first: Any, c_0: Any) -> tuple[Any, list[Gates]]:
        """Step after step, over the sentences that still go on."""
        found, saved, c, recurrent = [], [], c_0, first
        for rows, width in zip(self._split(a), self._next_widths(), strict=True):
            h, c, gates = step(rows + recurrent, c)
            found.append(h)
            saved.append(gates)
            if width is not None:
                c = self._head(c, width)
                recurrent = tf.matmul(self._head(h, width), U)
        return tf.concat(found, 0), saved

    def backwards(self, dh: Any, U: Any, saved: list[Gates]) -> tuple[Any, Any]:
        """From the last step to the first."""
        da: list[Any] = []
        dc = tf.zeros_like(saved[-1].c_before)
        steps = zip(self._split(dh), self.widths, self._next_widths(), saved, strict=True)
        for rows, width, after, gates in reversed(list(steps)):
            if after is not None:
                rows = rows + self._filled(tf.matmul(da[-1], U, transpose_b=True), width, after)
                dc = self._filled(dc, width, after)
            dgates, dc = step_back(gates, rows, dc)
            da.append(dgates)
        return tf.concat(da[::-1], 0), dc

    def first_width(self) -> Any:
        """Rows of the first step."""
        return self.widths[0]

    def before(self, h: Any) -> Any:
        """A gather, or all but the last step where all are equally wide."""
        return h[: -self.widths[0]] if self.places is None else tf.gather(h, self.places)

    def _split(self, rows: Any) -> list[Any]:
        parts: list[Any] = tf.split(rows, self.widths, num=len(self.widths))
        return parts

    def _next_widths(self) -> list[Any]:
        return [*self.widths[1:], None]

    def _head(self, rows: Any, width: Any) -> Any:
        return rows if self.places is None else rows[:width]

    def _filled(self, rows: Any, width: Any, n: Any) -> Any:
        """Zeros behind n rows, up to the width."""
        return rows if self.places is None else tf.pad(rows, [[0, width - n], [0, 0]])
