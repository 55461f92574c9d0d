"""Sketches of arrays: the few numbers by which large arrays are compared across processes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.contracts.system import Result
from harness.records.fingerprint import Sketch
from harness.values.arrays import uniforms

Array = NDArray[np.floating[Any]]
N_PRODUCTS = 2
DIGITS = 7  # of what is kept; float32 has no more


def sketches_of(result: Result, first_row: int = 0) -> dict[str, Sketch]:
    """Sketch loss, outputs and every gradient of a result.

    first_row: where its outputs lie among those of a larger mini-batch.
    """
    found = {
        "loss": (abs(result.loss), result.loss),
        "outputs": sketch("outputs", np.asarray(result.outputs), first_row),
    }
    for name, gradient in result.gradients.items():
        found[f"gradient of {name}"] = sketch(name, np.asarray(gradient))
    return found


def sketch(name: str, array: Array, first_row: int = 0) -> Sketch:
    """Norm of an array, and its products with signs that depend on its name and on places alone.

    first_row: where its rows lie in a larger array, whose sketch the sum of such products is.
    """
    rows = array.reshape(len(array), -1) if array.size else array.reshape(0, 1)
    norm = float(np.sqrt(np.einsum("ij,ij->i", rows, rows).sum(dtype=np.float64)))
    products = [
        float(
            _signs(name, k, 0, first_row + len(rows))[first_row:]
            @ (rows @ _signs(name, k, 1, rows.shape[1]).astype(rows.dtype)).astype(np.float64)
        )
        for k in range(N_PRODUCTS)
    ]
    return (norm, *products)


def kept(numbers: Sequence[float]) -> Sketch:
    """Numbers as a record keeps them."""
    return tuple(float(f"{number:.{DIGITS}g}") for number in numbers)


def added(parts: Sequence[Mapping[str, Sketch]]) -> dict[str, Sketch]:
    """Sum the products of sketches of parts, by name; norms, which do not add up, are left out."""
    return {
        name: tuple(np.sum([part[name][1:] for part in parts], axis=0).tolist())
        for name in parts[0]
    }


def _signs(name: str, number: int, axis: int, n: int) -> NDArray[np.float64]:
    drawn = uniforms(n, zlib.crc32(name.encode()), number, axis)
    return np.where(drawn < 0.5, -1.0, 1.0)
