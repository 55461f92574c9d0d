"""Gradients by central differences, an independent check of symbolic gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
STEP = 1e-5


def wrong_gradients(
    loss: Callable[[Mapping[str, Array]], float],
    weights: Mapping[str, Array],
    gradients: Mapping[str, Array],
) -> list[str]:
    """Return a line for each wrong entry of the gradients."""
    wrong = [f"no gradient of {name}" for name in weights if name not in gradients]
    wrong += [f"{name} is no parameter" for name in gradients if name not in weights]
    values = {name: np.array(value, dtype=np.float64) for name, value in weights.items()}
    for name, value in values.items():
        if name not in gradients:
            continue
        flat, found = value.reshape(-1), np.asarray(gradients[name]).reshape(-1)
        for k in range(flat.size):
            kept = flat[k]
            flat[k] = kept + STEP
            above = loss(values)
            flat[k] = kept - STEP
            below = loss(values)
            flat[k] = kept
            expected = (above - below) / (2 * STEP)
            if not np.isclose(found[k], expected, rtol=1e-5, atol=1e-7):
                wrong.append(f"{name}[{k}]: {found[k]:.10g}, by differences {expected:.10g}")
    return wrong
