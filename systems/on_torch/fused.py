"""PyTorch's fused LSTM: one nn.LSTM call (oneDNN on a CPU, cuDNN on CUDA) for whole sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import nn

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.contracts.system import RunSettings
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.models.seq2seq_at_once import Seq2SeqAtOnce
from dynbatch.harness.programs.model import ProgramModel
from dynbatch.harness.values.checked import Count
from dynbatch.systems.on_torch.layers import LossWay
from dynbatch.systems.on_torch.levels import Adapter as LevelsAdapter
from dynbatch.systems.on_torch.models.lstm import PackedRecurrence, PaddedRecurrence


@dataclass(frozen=True, slots=True)
class FusedOptions:
    """Input of nn.LSTM, and method of the loss.

    Attributes:
        input: "padded": rectangles with padding after the ends of sentences; "packed": a
            PackedSequence without padding.
        buckets: number of rectangles, each of sentences of similar length; only if padded.
        loss: see dynbatch.systems.on_torch.layers.OutputLayer.

    Raises:
        ConfigError: several buckets with packed input.
    """

    input: Literal["padded", "packed"] = "padded"
    buckets: Count = 1
    loss: LossWay = "in_place"

    def __post_init__(self) -> None:
        if self.input == "packed" and self.buckets > 1:
            raise ConfigError(
                f"system.options.buckets={self.buckets} is not allowed with"
                " system.options.input=packed: expected 1; set 1, or system.options.input=padded"
            )


class Adapter(LevelsAdapter):
    """Manually batched system with nn.LSTM instead of separate steps."""

    option_type = FusedOptions
    options: FusedOptions

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Return why the system cannot run; nn.LSTM takes only whole sentences.

        It cannot run trees, or decoders whose next input depends on a computed output.
        """
        is_whole = model.instance_kind == "chain" or isinstance(model, Seq2SeqAtOnce)
        if not is_whole or isinstance(model, ProgramModel):
            return (
                f"nn.LSTM runs whole sentences of plain LSTM cells, unlike model {model.name};"
                " choose system=torch_levels if it has the model"
            )
        return super().skip(model, settings)

    def _build(self, network: Callable[..., nn.Module], model: Model) -> nn.Module:
        options = self.options
        way = PackedRecurrence() if options.input == "packed" else PaddedRecurrence(options.buckets)
        return network(model, way, options.loss)
