"""TensorFlow with sentences unrolled: a tf.function with operations of its own for every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from harness.contracts.model import Model
from harness.errors import ConfigError
from systems.on_tensorflow.parts.sentences import PaddedUnrolled, Shrinking, Way
from systems.on_tensorflow.runtime import Network, TensorFlowSystem


@dataclass(frozen=True, slots=True)
class SentenceOptions:
    """How sentences lie side by side, and whether XLA compiles the program.

    layout: steps that shrink to the sentences that still go on, or rectangles padded behind the
    sentences' ends, which XLA needs. round_up_to: of the number of steps, so that few programs
    serve many lengths. buckets: how many rectangles of sentences of similar length there are.

    Raises ConfigError for numbers below 1, and for what does not go together.
    """

    xla: bool = False
    layout: Literal["shrinking", "padded"] = "shrinking"
    round_up_to: int = 8
    buckets: int = 1

    def __post_init__(self) -> None:
        for name, value in (("round_up_to", self.round_up_to), ("buckets", self.buckets)):
            if value < 1:
                raise ConfigError(f"system.options.{name}={value} is not allowed; give 1 or more")
        if self.xla and self.layout != "padded":
            raise ConfigError(
                f"system.options.layout={self.layout} is not allowed with system.options.xla=true,"
                " which needs all shapes; give padded"
            )
        if self.buckets > 1 and self.layout != "padded":
            raise ConfigError(
                f"system.options.buckets={self.buckets} is not allowed with system.options.layout="
                f"{self.layout}, which pads nothing; give 1, or system.options.layout=padded"
            )


class Adapter(TensorFlowSystem):
    """One trace for every number of steps that lengths are rounded up to."""

    networks = "systems.on_tensorflow.models:SIDE_BY_SIDE"
    option_type = SentenceOptions
    options: SentenceOptions

    @property
    def uses_xla(self) -> bool:  # type: ignore[override]
        """As the options have it."""
        return self.options.xla

    def _build(self, network: Callable[..., Network], model: Model) -> Network:
        return network(model, self._way())

    def _way(self) -> Way:
        options: Any = self.options
        if options.layout == "padded":
            return PaddedUnrolled(options.buckets, options.round_up_to)
        return Shrinking(options.round_up_to)
