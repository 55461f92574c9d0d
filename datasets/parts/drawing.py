"""Generation of corpora from a seed: lengths and ranks follow tables of quantiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dynbatch.datasets.parts.reading import LazyInstances
from dynbatch.harness.contracts.corpus import Corpus, hash_arguments
from dynbatch.harness.contracts.home import SPLITS
from dynbatch.harness.values.arrays import IntArray, as_int_array, draw_uniforms
from dynbatch.harness.values.instances import Instance

Key = tuple[int, int, int]  # seed, split and index of an instance

# Tables of lengths have the lengths at these quantiles.
QUANTILES = (*(step / 20 for step in range(20)), 0.975, 0.99, 0.995, 1.0)


def draw_length(key: Key, lengths: Sequence[float], least: int = 1) -> int:
    """Draw a length from a table of its values at QUANTILES."""
    return max(least, int(np.interp(draw_uniforms(1, *key, 0)[0], QUANTILES, lengths) + 0.5))


def convert_to_ranks(numbers: object, shares: Sequence[float], ranks: Sequence[int]) -> IntArray:
    """Convert uniform numbers to ranks.

    Args:
        numbers: uniform numbers in [0, 1).
        shares: fractions of all draws that fall below each of `ranks`.
        ranks: ranks at which these fractions are given; values between them are interpolated.
    """
    return as_int_array(np.interp(np.asarray(numbers), shares, ranks).astype(np.int32))


def generate_corpus(
    name: str,
    split: str,
    n_instances: int,
    build: Callable[[Key], Instance],
    sizes: Mapping[str, int],
    source: str,
    arguments: Mapping[str, int],
    *,
    kind: str = "chain",
    synthetic: bool = True,
) -> Corpus:
    """Return a corpus whose instances are built from their keys.

    Args:
        build: builds the instance of a key.
        arguments: arguments of the generator, with `seed`, which the corpus's checksum covers.
        synthetic: True if the corpus replaces a real one.
    """

    def build_instance(index: int) -> Instance:
        return build((arguments["seed"], SPLITS.index(split), index))

    return Corpus(
        name=name,
        split=split,
        instances=LazyInstances(n_instances, build_instance),
        sizes=sizes,
        synthetic=synthetic,
        generated=True,
        sha256=hash_arguments(name=name, split=split, **arguments),
        source=source,
        instance_kind=kind,
    )
