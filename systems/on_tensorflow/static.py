"""TensorFlow with unrolled sentences: a tf.function with separate operations for every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import tensorflow as tf

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.values.checked import Count
from dynbatch.systems.on_tensorflow.layers import Gates, StepOrder, step, step_back
from dynbatch.systems.on_tensorflow.runtime import Network, TensorFlowSystem
from dynbatch.systems.on_tensorflow.sentences import (
    Layer,
    Padded,
    SentenceLayout,
    Shrinking,
    make_layer_along,
)


@dataclass(frozen=True, slots=True)
class SentenceOptions:
    """Arrangement of sentences, and compilation by XLA.

    Attributes:
        xla: compile the program by XLA, which needs the padded layout.
        layout: "shrinking", steps over the sentences that have not ended, or "padded", rectangles
            padded after the ends of sentences.
        round_up_to: multiple to which the number of steps is rounded up, so that few programs serve
            many lengths.
        buckets: number of rectangles, each with sentences of similar length.

    Raises:
        ConfigError: If options contradict each other.
    """

    xla: bool = False
    layout: Literal["shrinking", "padded"] = "shrinking"
    round_up_to: Count = 8
    buckets: Count = 1

    def __post_init__(self) -> None:
        if self.xla and self.layout != "padded":
            raise ConfigError(
                f"system.options.layout={self.layout} is not allowed with system.options.xla=true:"
                " expected padded, for fixed shapes"
            )
        if self.buckets > 1 and self.layout != "padded":
            raise ConfigError(
                f"system.options.buckets={self.buckets} is not allowed with system.options.layout="
                f"{self.layout}: expected 1; set 1, or system.options.layout=padded"
            )


class Adapter(TensorFlowSystem):
    """Adapter with one trace per rounded number of steps."""

    networks = "dynbatch.systems.on_tensorflow.models:SIDE_BY_SIDE"
    option_type = SentenceOptions
    options: SentenceOptions

    @property
    def uses_xla(self) -> bool:  # type: ignore[override]
        """The option `xla`."""
        return self.options.xla

    def _build(self, network: Callable[..., Network], model: Model) -> Network:
        return network(model, self._make_layout())

    def _make_layout(self) -> SentenceLayout:
        options: Any = self.options
        if options.layout == "padded":
            return PaddedUnrolled(options.buckets, options.round_up_to)
        return ShrinkingUnrolled(options.round_up_to)


class ShrinkingUnrolled(Shrinking):
    """Separate operations per step, over the sentences that have not ended."""

    def make_steps(self, widths: Any, before: Any) -> StepOrder:
        return Unrolled(tf.unstack(widths), before)


class PaddedUnrolled(Padded):
    """Separate operations per step of each rectangle."""

    def make_layer(self, n_steps: int, width: int) -> Layer:
        return make_layer_along(Unrolled([width] * n_steps))


@dataclass(frozen=True)
class Unrolled(StepOrder):
    """Unrolled steps, one per width.

    Attributes:
        widths: rows of every step: equal integers (padded), or scalar tensors that never increase.
        places: rows of the previous step; None if all steps have the same width.
    """

    widths: Sequence[Any]
    places: Any | None = None

    def run_forward(self, a: Any, U: Any, first: Any, c_0: Any) -> tuple[Any, list[Gates]]:
        """Run the steps from first to last, over the sentences that have not ended."""
        hidden, saved, c, recurrent = [], [], c_0, first
        for rows, width in zip(self._split(a), self._list_next_widths(), strict=True):
            h, c, gates = step(rows + recurrent, c)
            hidden.append(h)
            saved.append(gates)
            if width is not None:
                c = self._take_head(c, width)
                recurrent = tf.matmul(self._take_head(h, width), U)
        return tf.concat(hidden, 0), saved

    def compute_cells(self, saved: list[Gates]) -> Any:
        return tf.concat([gates.f * gates.c_before + gates.i * gates.g for gates in saved], 0)

    def run_backward(
        self, dh: Any, U: Any, saved: list[Gates], dcells: Any | None
    ) -> tuple[Any, Any]:
        da: list[Any] = []
        dc = tf.zeros_like(saved[-1].c_before)
        added = [None] * len(saved) if dcells is None else self._split(dcells)
        steps = zip(
            self._split(dh), added, self.widths, self._list_next_widths(), saved, strict=True
        )
        for rows, more, width, after, gates in reversed(list(steps)):
            if after is not None:
                rows = rows + self._pad_rows(tf.matmul(da[-1], U, transpose_b=True), width, after)
                dc = self._pad_rows(dc, width, after)
            dc = dc if more is None else dc + more
            dgates, dc = step_back(gates, rows, dc)
            da.append(dgates)
        return tf.concat(da[::-1], 0), dc

    def get_first_width(self) -> Any:
        return self.widths[0]

    def gather_previous(self, h: Any) -> Any:
        """Gather rows of previous steps, or return all but the last step if widths are equal."""
        return h[: -self.widths[0]] if self.places is None else tf.gather(h, self.places)

    def _split(self, rows: Any) -> list[Any]:
        parts: list[Any] = tf.split(rows, self.widths, num=len(self.widths))
        return parts

    def _list_next_widths(self) -> list[Any]:
        return [*self.widths[1:], None]

    def _take_head(self, rows: Any, width: Any) -> Any:
        return rows if self.places is None else rows[:width]

    def _pad_rows(self, rows: Any, width: Any, n: Any) -> Any:
        """Append zeros to n rows, up to the width."""
        return rows if self.places is None else tf.pad(rows, [[0, width - n], [0, 0]])
