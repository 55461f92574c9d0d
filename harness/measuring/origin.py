"""Where a value that is no number comes from: the first operator of the oracle that makes one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.contracts.model import Model, Weights
from harness.oracle import run_reference
from harness.vertex.operators import Node

LARGEST = float(np.finfo(np.float32).max)  # what systems compute in


class _FoundError(Exception):
    """Ends the oracle's run, and says what was found."""


def origin_of_not_finite(
    model: Model, weights: Weights, instances: Sequence[Any], mode: str
) -> str:
    """Say which operator is the first whose value is NaN, or infinite in float32.

    First in program order, of the oracle. Where it has none, what computed the value is at fault,
    and not the model.
    """

    def watch(function: str, node: Node, vertex: int, value: Any) -> None:
        values = np.asarray(value, np.float64)
        if not np.all(np.abs(values) <= LARGEST):  # so is NaN
            what = "NaN" if np.any(np.isnan(values)) else "infinite in float32"
            raise _FoundError(f"{node.op} of {function} is the first operator that is {what}")

    with np.errstate(all="ignore"):
        try:
            run_reference(model, weights, instances, mode, watch=watch)
        except _FoundError as found:
            return str(found)
    return "the oracle is finite there, so the model is not at fault"
