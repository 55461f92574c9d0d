"""TensorFlow with its own LSTM: one operation for all steps of a layer, padded by length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.contracts.model import Model
from harness.errors import ConfigError
from systems.on_tensorflow.parts.blocks import Blocks
from systems.on_tensorflow.runtime import Network, TensorFlowSystem


@dataclass(frozen=True, slots=True)
class BlockOptions:
    """buckets: rectangles of sentences of similar length, at most.

    Raises ConfigError for a number below 1.
    """

    buckets: int = 1

    def __post_init__(self) -> None:
        if self.buckets < 1:
            raise ConfigError(
                f"system.options.buckets={self.buckets} is not allowed; give 1 or more"
            )


class Adapter(TensorFlowSystem):
    """One trace for every combination of shapes, each of a few operations."""

    networks = "systems.on_tensorflow.models:SIDE_BY_SIDE"
    option_type = BlockOptions
    options: BlockOptions

    def _build(self, network: Callable[..., Network], model: Model) -> Network:
        return network(model, Blocks(self.options.buckets, round_up_to=1))
