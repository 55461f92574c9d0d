"""Where derivatives jump: of very many inputs of relus some are so near 0 that rounding decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.contracts.model import Model, traced_functions
from harness.vertex.program import VertexFunction

# Of inputs that are rounded by 1e-6 of the largest about as large a part changes its sign. With
# fewer inputs than these none is to be expected that does, and gradients are compared as closely as
# all else.
N_INPUTS = 100_000


def is_kinked(model: Model, instances: Sequence[Any]) -> bool:
    """Whether rounding moves gradients of a mini-batch by more than it moves its outputs."""
    functions = traced_functions(model)
    widths = {name: _n_relus(function) for name, function in functions.items()}
    if not any(widths.values()):
        return False
    mini_batch = model.mini_batch(instances)
    counts = np.bincount(mini_batch.graph.types, minlength=len(model.vertex_types) + 1)[1:]
    n_inputs = sum(
        int(n) * widths[name] for n, name in zip(counts, model.vertex_types, strict=False)
    )
    return n_inputs + len(mini_batch.outputs) * widths["output"] >= N_INPUTS


def _n_relus(function: VertexFunction) -> int:
    return sum(math.prod(node.shape) for node in function.nodes if node.op == "relu")
