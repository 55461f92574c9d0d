"""Order of the gates of an LSTM: i, f, g, o in the models, and i, f, o, g in DyNet's own LSTM."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def swap_last_gates(weights: Array) -> Array:
    """Swap the last two gates: columns i, f, g, o become i, f, o, g, and vice versa."""
    i, f, third, fourth = np.split(weights, 4, axis=-1)
    return np.concatenate([i, f, fourth, third], axis=-1)
