"""What all networks of sentences share: words looked up, and a plan of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from harness.contracts.model import Model
from harness.models.parts.lstm import layer_suffix
from harness.values.instances import Chain
from systems.on_jax.parts.columns import columns_of
from systems.on_jax.parts.plan import Plan


class SentenceNetwork:
    """both_ways: whether sentences are read against their order, too."""

    tables: Mapping[str, str] = {"embedding": "words"}
    both_ways: ClassVar[bool]

    def __init__(self, model: Model, options: Any) -> None:
        self.layers = [layer_suffix(k) for k in range(1, model.options["layers"] + 1)]
        self.options = options

    def plan(self, chains: Sequence[Chain]) -> Plan:
        """Columns of the sentences, and words and labels by place."""
        widths, multiple = self.options.widths, self.options.multiple
        return columns_of(chains, widths, multiple, both_ways=self.both_ways)
