"""Gates of an LSTM: i, f, g, o or f, i, o, g in the models, and i, f, o, g in DyNet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
MAX_FUSED = 128  # largest hidden size for which one operator of all gates is faster


def swap_last_gates(weights: Array) -> Array:
    """Swap the last two gates: columns i, f, g, o become i, f, o, g, and vice versa."""
    i, f, third, fourth = np.split(weights, 4, axis=-1)
    return np.concatenate([i, f, fourth, third], axis=-1)


def swap_first_gates(weights: Array) -> Array:
    """Swap the first two gates: columns f, i, o, g become i, f, o, g, and vice versa."""
    first, second, o, g = np.split(weights, 4, axis=-1)
    return np.concatenate([second, first, o, g], axis=-1)
