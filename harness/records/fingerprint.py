"""A fingerprint: a few numbers of all that a system computed of the timed mini-batches.

Systems that compute the same have the same fingerprint but for rounding, whatever process, round or
framework it was taken in. Of every array there is a sketch: its norm, and its products with random
signs, which see an error wherever it is: an error of one number, or of one part of all numbers,
changes them by as much as it has norm itself (cf. Johnson and Lindenstrauss, 1984).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from harness.contracts.system import Result
from harness.values.arrays import uniforms

# Of the norm of an array, and of a loss. Honest systems differed by 1.4e-5 at most (Tree-LSTM,
# hidden 256, batch 64, eight systems).
TOLERANCE = 1e-4
# Of the norm of a gradient where derivatives jump (relus): of 8 million inputs of relus some are so
# near 0 that rounding decides, each by itself, whether a whole subtree learns. Honest systems moved
# the gradient of Tree-FC's table by 2.5e-3 of its norm (hidden 512, 256 leaves, batch 64); an
# instance of 64 that is left out moves it by about 1 / sqrt(64). Products
# with signs are spread as that norm, and four times of it is allowed; of 15 systems' sketches two
# differed by 8e-4 at most.
KINK_TOLERANCE = 1e-2
# Of the loss of a whole pass, whose steps carry rounding from mini-batch to mini-batch.
PASS_TOLERANCE = 1e-3

SMOOTH = ("loss", "outputs")  # all else is a gradient

Sketch = tuple[float, ...]  # norm, then products with signs


class Fingerprint(BaseModel):
    """What a system computed of the timed mini-batches, before they are timed.

    workload: hash of mini-batches, model, weights, mode and step; others are not compared.
    losses: of every mini-batch, at the initial weights.
    sketches: by array ("outputs", "gradient of W"), of as many mini-batches as have outputs that
    are read in moments; at the initial weights, too.
    pass_losses: summed over the mini-batches, of the first passes with updates.
    proved: whether the oracle confirmed a whole mini-batch on which systems did not agree.
    kinked: whether derivatives jump so often that rounding shows, see
        harness/measuring/mini_batch_check.py.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    workload: str
    losses: tuple[float, ...]
    sketches: Mapping[str, tuple[Sketch, ...]]
    pass_losses: tuple[float, ...] = ()
    proved: bool = False
    kinked: bool = False


class Difference(NamedTuple):
    """Where two fingerprints differ; mini_batch: None for whole passes."""

    what: str
    mini_batch: int | None
    relative: float

    def __str__(self) -> str:
        where = "" if self.mini_batch is None else f" of mini-batch {self.mini_batch}"
        return f"{self.what}{where} by {self.relative:.2g}"


def difference(found: Fingerprint, expected: Fingerprint) -> Difference | None:
    """Return the first difference beyond rounding, or None.

    What only one of both has is not compared; a number that is not finite always differs.
    """
    return next(_differences(found, expected), None)


def _differences(found: Fingerprint, expected: Fingerprint) -> Iterator[Difference]:
    for k, pair in enumerate(zip(found.losses, expected.losses, strict=False)):
        yield from _if_beyond(TOLERANCE, "the loss", k, *((loss,) for loss in pair))
    kinked = found.kinked or expected.kinked
    for name in expected.sketches.keys() & found.sketches.keys():
        tolerance = sketch_tolerance(name, TOLERANCE, kinked=kinked)
        pairs = zip(found.sketches[name], expected.sketches[name], strict=False)
        for k, (one, other) in enumerate(pairs):
            yield from _if_beyond(tolerance, name, k, one, other)
    for one_, other_ in zip(found.pass_losses, expected.pass_losses, strict=False):
        yield from _if_beyond(PASS_TOLERANCE, "the loss of a pass", None, (one_,), (other_,))


def sketch_tolerance(name: str, smooth: float, *, kinked: bool) -> float:
    """How far the sketch of an array may be off, of its norm; smooth: where nothing jumps."""
    return max(smooth, KINK_TOLERANCE) if kinked and name not in SMOOTH else smooth


def _if_beyond(
    tolerance: float, what: str, mini_batch: int | None, one: Sketch, other: Sketch
) -> Iterator[Difference]:
    relative = relative_difference(one, other)
    if not relative <= tolerance:
        yield Difference(what, mini_batch, relative)


def relative_difference(one: Sketch, other: Sketch) -> float:
    """Largest difference of two sketches, relative to the larger norm; zeros are equal."""
    largest = max(abs(a - b) for a, b in zip(one, other, strict=True))
    return largest / max(abs(one[0]), abs(other[0])) if largest else 0.0


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
