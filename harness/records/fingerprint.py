"""Fingerprints: a few numbers that summarize a system's results on the timed mini-batches.

Systems with equal results have equal fingerprints up to rounding, regardless of process, round and
framework. Every array has a sketch: its norm, and its products with random signs. The products
detect an error at any position: it changes them by about its own norm (cf. Johnson and
Lindenstrauss, 1984).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from dynbatch.harness.contracts.system import Result
from dynbatch.harness.values.arrays import draw_uniforms
from dynbatch.harness.values.precision import ROUNDING

# Relative to the norm of an array, or to a loss; that of gradients grows with the vertices. Correct
# systems differed by at most 1.4e-5 (Tree-LSTM, hidden 256, batch 64, eight systems).
TOLERANCE = 1e-4
# Relative to the norm of a gradient if derivatives jump (ReLUs): some of 8 million ReLU inputs are
# so close to 0 that rounding decides whether a whole subtree learns. Correct systems changed the
# gradient of Tree-FC's table by 2.5e-3 of its norm (hidden 512, 256 leaves, batch 64); omitting an
# instance of 64 changes it by about 1 / sqrt(64). Products with signs vary like that norm, and four
# times that change is allowed; the sketches of 15 systems differed by at most 8e-4.
KINK_TOLERANCE = 1e-2
# Share of the additions to a gradient whose rounding may add up. Over 16,384 words, the gradient of
# the output layer's bias, of nearly equal probabilities, changed by 1.05e-4 of its norm: a share of
# 0.11.
SAME_WAY = 1 / 8
# Relative to the loss of a whole pass, whose steps accumulate rounding over mini-batches.
PASS_TOLERANCE = 1e-3

SMOOTH = ("loss", "outputs")  # all other arrays are gradients
GRADIENT = "gradient of "  # first words of their names

Sketch = tuple[float, ...]  # norm, then products with signs


class Fingerprint(BaseModel):
    """Summary of a system's results on the timed mini-batches, computed before timing.

    Attributes:
        workload: Hash of mini-batches, model, weights, mode and learning rate; only fingerprints
            with equal hashes are compared.
        losses: Loss of every mini-batch at the initial weights.
        sketches: Sketches by array ("outputs", "gradient of W") at the initial weights, of the
            first mini-batches, as many as can be read quickly.
        pass_losses: Summed losses of the first passes with updates.
        proved: Whether the reference confirmed a whole mini-batch on which systems disagreed.
        kinked: Whether derivatives jump so often that rounding matters; see
            harness/measuring/checks/mini_batch_check.py.
        n_vertices: Number of vertices of the first mini-batch; 0 if it was not recorded.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    workload: str
    losses: tuple[float, ...]
    sketches: Mapping[str, tuple[Sketch, ...]]
    pass_losses: tuple[float, ...] = ()
    proved: bool = False
    kinked: bool = False
    n_vertices: int = 0


class Difference(NamedTuple):
    """Difference of two fingerprints; mini_batch is None for whole passes."""

    what: str
    mini_batch: int | None
    relative: float

    def __str__(self) -> str:
        where = "" if self.mini_batch is None else f" of mini-batch {self.mini_batch}"
        return f"{self.what}{where} by {self.relative:.2g}"


def find_difference(actual: Fingerprint, expected: Fingerprint) -> Difference | None:
    """Return the first difference beyond rounding, or None.

    Only values that both fingerprints have are compared. A value that is not finite always differs.
    """
    return next(_find_differences(actual, expected), None)


def _find_differences(actual: Fingerprint, expected: Fingerprint) -> Iterator[Difference]:
    for k, pair in enumerate(zip(actual.losses, expected.losses, strict=False)):
        yield from _compare_sketches(TOLERANCE, "the loss", k, *((loss,) for loss in pair))
    kinked = actual.kinked or expected.kinked
    n_vertices = max(actual.n_vertices, expected.n_vertices)
    for name in expected.sketches.keys() & actual.sketches.keys():
        tolerance = choose_sketch_tolerance(name, TOLERANCE, kinked=kinked, n_vertices=n_vertices)
        pairs = zip(actual.sketches[name], expected.sketches[name], strict=False)
        for k, (first, other) in enumerate(pairs):
            yield from _compare_sketches(tolerance, name, k, first, other)
    for one_, other_ in zip(actual.pass_losses, expected.pass_losses, strict=False):
        yield from _compare_sketches(PASS_TOLERANCE, "the loss of a pass", None, (one_,), (other_,))


def select_sketches(fingerprint: Fingerprint, mini_batch: int) -> dict[str, Sketch]:
    """Return the sketches of a mini-batch by array, of its loss alone if it is not sketched."""
    loss, of_arrays = fingerprint.losses[mini_batch], fingerprint.sketches.items()
    sketches = {name: column[mini_batch] for name, column in of_arrays if mini_batch < len(column)}
    return {"loss": (abs(loss), loss), **sketches}


def choose_sketch_tolerance(name: str, smooth: float, *, kinked: bool, n_vertices: int) -> float:
    """Return the tolerance of an array's sketch, relative to the array's norm.

    A gradient is a sum over vertices. If float32 numbers of equal sign are added one by one, many
    additions may round in the same direction: SAME_WAY is their allowed share.

    Args:
        smooth: Tolerance of losses and outputs.
        kinked: See Fingerprint.
        n_vertices: Number of vertices of the mini-batch.
    """
    if name in SMOOTH:
        return smooth
    summed = smooth + SAME_WAY * n_vertices * ROUNDING
    return max(summed, KINK_TOLERANCE) if kinked else summed


def _compare_sketches(
    tolerance: float, what: str, mini_batch: int | None, first: Sketch, other: Sketch
) -> Iterator[Difference]:
    relative = compute_relative_difference(first, other)
    if not relative <= tolerance:
        yield Difference(what, mini_batch, relative)


def compute_relative_difference(first: Sketch, other: Sketch) -> float:
    """Return the largest difference of two sketches relative to the larger norm; 0 if equal."""
    largest = max(abs(a - b) for a, b in zip(first, other, strict=True))
    return largest / max(abs(first[0]), abs(other[0])) if largest else 0.0


Array = NDArray[np.floating[Any]]
N_PRODUCTS = 2
DIGITS = 7  # significant digits of stored numbers, the precision of float32


def sketch_result(result: Result, first_row: int = 0) -> dict[str, Sketch]:
    """Sketch loss, outputs and every gradient of a result.

    Args:
        first_row: Index of its first output in a larger mini-batch.
    """
    sketches = {
        "loss": (abs(result.loss), result.loss),
        "outputs": sketch_array("outputs", np.asarray(result.outputs), first_row),
    }
    for name, gradient in result.gradients.items():
        sketches[f"{GRADIENT}{name}"] = sketch_array(name, np.asarray(gradient))
    return sketches


def sketch_array(name: str, array: Array, first_row: int = 0) -> Sketch:
    """Return the norm of an array and its products with signs.

    The signs depend only on the name and on positions.

    Args:
        first_row: Index of its first row in a larger array, whose products are the sums of those
            of its parts.
    """
    rows = array.reshape(len(array), -1) if array.size else array.reshape(0, 1)
    norm = float(np.sqrt(np.einsum("ij,ij->i", rows, rows).sum(dtype=np.float64)))
    products = [
        float(
            _draw_signs(name, k, 0, first_row + len(rows))[first_row:]
            @ (rows @ _draw_signs(name, k, 1, rows.shape[1]).astype(rows.dtype)).astype(np.float64)
        )
        for k in range(N_PRODUCTS)
    ]
    return (norm, *products)


def round_numbers(numbers: Sequence[float]) -> Sketch:
    return tuple(float(f"{number:.{DIGITS}g}") for number in numbers)


def sum_sketches(parts: Sequence[Mapping[str, Sketch]]) -> dict[str, Sketch]:
    """Sum the products of sketches of parts by name; norms are dropped, as they do not add up."""
    return {
        name: tuple(np.sum([part[name][1:] for part in parts], axis=0).tolist())
        for name in parts[0]
    }


def _draw_signs(name: str, number: int, axis: int, n: int) -> NDArray[np.float64]:
    drawn = draw_uniforms(n, zlib.crc32(name.encode()), number, axis)
    return np.where(drawn < 0.5, -1.0, 1.0)
