"""Small sentences for tests: random ones of every kind, of given lengths."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from harness.contracts.model import ModelSizes
from harness.values.instances import Chain, SentencePair
from harness.values.parsed import ParsedSentence

ALL_SIZES = {
    **{"words": 7, "characters": 5, "classes": 3},
    **{"source_words": 6, "target_words": 5, "tags": 4, "relations": 3},
}


def random_chain(
    n: int, sizes: ModelSizes, rng: np.random.Generator, share_spelled: float = 0.5
) -> Chain:
    """About this share of its words are spelled out where the sizes have characters."""
    spelled = (
        rng.random(n) < share_spelled if "characters" in sizes.data else np.zeros(n, dtype=bool)
    )
    n_letters = np.where(spelled, rng.integers(1, 6, n), 0)
    return Chain(
        rng.integers(sizes.of("words"), size=n),
        rng.integers(sizes.data.get("classes", sizes.of("words")), size=n),
        np.concatenate([[0], np.cumsum(n_letters)]),
        rng.integers(sizes.data.get("characters", 1), size=n_letters.sum()),
    )


def random_pair(n: int, sizes: ModelSizes, rng: np.random.Generator) -> SentencePair:
    """A source of n words; its target is as long or longer."""
    n_target = 2 + int(rng.integers(n + 2))
    return SentencePair(
        rng.integers(sizes.of("source_words"), size=n),
        rng.integers(sizes.of("target_words"), size=n_target),
    )


def random_parsed(n: int, sizes: ModelSizes, rng: np.random.Generator) -> ParsedSentence:
    """A random projective tree over n words."""
    return ParsedSentence(
        rng.integers(sizes.of("words"), size=n + 1),
        rng.integers(sizes.of("tags"), size=n + 1),
        projective_heads(n, rng),
        rng.integers(sizes.of("relations"), size=n),
    )


def projective_heads(n: int, rng: np.random.Generator) -> list[int]:
    """Cut every span at random places; each piece has a head that hangs on the span's own."""
    heads = [0] * n

    def hang(start: int, end: int, head: int) -> None:
        while start < end:
            cut = int(rng.integers(start + 1, end + 1))
            top = int(rng.integers(start, cut))
            heads[top] = head
            hang(start, top, top)
            hang(top + 1, cut, top)
            start = cut

    hang(0, n, n)
    return heads


def random_sentences(
    kind: str, lengths: Sequence[int], sizes: ModelSizes, seed: int, share_spelled: float = 0.5
) -> list:
    """Instances of a kind and these lengths; share_spelled: of the words of chains."""
    rng = np.random.default_rng(seed)
    draw = {
        "chain": partial(random_chain, share_spelled=share_spelled),
        "sentence_pair": random_pair,
        "parsed_sentence": random_parsed,
    }[kind]
    return [draw(n, sizes, rng) for n in lengths]
