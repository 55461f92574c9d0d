"""TensorFlow with its own LSTM: one operation for all steps of a layer, padded by length."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

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

    network = "SideBySide"
    option_type = BlockOptions
    options: BlockOptions

    def _network(self, module: ModuleType, model: Model) -> Network:
        net: Network = module.SideBySide(model, Blocks(self.options.buckets, round_up_to=1))
        return net
