"""Small instances for tests, hand-written and random ones of every kind, and models by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import ModelSizes, find_model_class
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.instances import Chain, Lattice, SentencePair, Tree
from dynbatch.harness.values.parsed import ParsedSentence

ALL_SIZES = {
    **{"words": 7, "characters": 5, "classes": 3},
    **{"source_words": 6, "target_words": 5, "tags": 4, "relations": 3},
}


def build(name: str, sizes: ModelSizes, **options: Any) -> Any:
    """Build the model of a module of harness/models/."""
    return find_model_class(f"dynbatch.harness.models.{name}")(sizes, **options)


def random_chain(
    n: int, sizes: ModelSizes, rng: np.random.Generator, share_spelled: float = 0.5
) -> Chain:
    """Draw a sentence; this fraction of its words is spelled out if the sizes have characters."""
    spelled = (
        rng.random(n) < share_spelled if "characters" in sizes.data else np.zeros(n, dtype=bool)
    )
    n_letters = np.where(spelled, rng.integers(1, 6, n), 0)
    return Chain(
        rng.integers(sizes.get_size("words"), size=n),
        rng.integers(sizes.data.get("classes", sizes.get_size("words")), size=n),
        np.concatenate([[0], np.cumsum(n_letters)]),
        rng.integers(sizes.data.get("characters", 1), size=n_letters.sum()),
    )


def random_pair(n: int, sizes: ModelSizes, rng: np.random.Generator) -> SentencePair:
    """Draw a source of n words, with a target of random length."""
    n_target = 2 + int(rng.integers(n + 2))
    return SentencePair(
        rng.integers(sizes.get_size("source_words"), size=n),
        rng.integers(sizes.get_size("target_words"), size=n_target),
    )


def random_parsed(n: int, sizes: ModelSizes, rng: np.random.Generator) -> ParsedSentence:
    """Draw a random projective tree over n words."""
    return ParsedSentence(
        rng.integers(sizes.get_size("words"), size=n + 1),
        rng.integers(sizes.get_size("tags"), size=n + 1),
        projective_heads(n, rng),
        rng.integers(sizes.get_size("relations"), size=n),
    )


def projective_heads(n: int, rng: np.random.Generator) -> list[int]:
    """Cut every span at random positions; each piece has a head that depends on the span's head."""
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


def random_tree(n_leaves: int, sizes: ModelSizes, rng: np.random.Generator) -> Tree:
    """Draw a tree by random splits."""
    words: list[int] = []
    children: list[tuple[int, int]] = []

    def grow(n: int) -> int:
        if n == 1:
            words.append(int(rng.integers(sizes.get_size("words"))))
            children.append((-1, -1))
        else:
            n_left = int(rng.integers(1, n))
            own = (grow(n_left), grow(n - n_left))
            words.append(-1)
            children.append(own)
        return len(words) - 1

    grow(n_leaves)
    left, right = zip(*children, strict=True)
    labels = rng.integers(sizes.get_size("classes"), size=len(words))
    return Tree(np.array(words), labels, np.array(left), np.array(right))


def random_lattice(n: int, sizes: ModelSizes, rng: np.random.Generator) -> Lattice:
    """Draw a chain of characters, with up to three words that end at each of them."""
    sources: list[int] = []
    tokens: list[int] = []
    arc_start = [0, 0]
    for state in range(1, n + 1):
        n_words = min(int(rng.integers(4)), state - 1)
        begins = rng.choice(state - 1, n_words, replace=False) if n_words else []
        sources += [state - 1, *map(int, begins)]
        tokens += [int(rng.integers(sizes.get_size("characters")))]
        tokens += rng.integers(sizes.get_size("words"), size=n_words).tolist()
        arc_start.append(len(sources))
    return Lattice(rng.integers(sizes.get_size("classes"), size=n + 1), arc_start, sources, tokens)


def random_instances(
    kind: str, lengths: Sequence[int], sizes: ModelSizes, seed: int, share_spelled: float = 0.5
) -> list:
    """Draw instances of a kind with these numbers of leaves, characters or words."""
    rng = np.random.default_rng(seed)
    draw = {
        "chain": partial(random_chain, share_spelled=share_spelled),
        "sentence_pair": random_pair,
        "parsed_sentence": random_parsed,
        "tree": random_tree,
        "lattice": random_lattice,
    }[kind]
    return [draw(n, sizes, rng) for n in lengths]


def draw_trees(sizes: ModelSizes, n_leaves: Sequence[int]) -> list[Tree]:
    """Draw trees with these numbers of leaves, the same ones in every call."""
    return random_instances("tree", n_leaves, sizes, seed=3)


def lattice(words: Sequence[tuple[int, int]], n_states: int, seed: int = 0) -> Lattice:
    """Build a lattice of n_states - 1 characters and of words (from state, to state)."""
    random = np.random.default_rng(seed)
    sources: list[int] = []
    arc_start = [0, 0]
    for state in range(1, n_states):
        sources += [state - 1, *(begin for begin, end in words if end == state)]
        arc_start.append(len(sources))
    tokens = random.integers(0, 5, len(sources))
    tags = np.concatenate([[0], random.integers(0, 3, n_states - 1)])
    return Lattice(tags, arc_start, sources, tokens)


# One word; two words that end together; no words; three words that end together, and overlap.
LATTICES = (
    lattice([(0, 2)], 4, seed=1),
    lattice([(0, 3), (1, 3), (3, 5)], 6, seed=2),
    lattice([], 2, seed=3),
    lattice([(0, 3), (1, 4), (0, 4), (2, 4)], 5, seed=4),
)
PAIRS = [
    Tree(*map(as_int_array, ([a, b, -1], [0, 0, 0], [-1, -1, 0], [-1, -1, 1])))
    for a, b in ((0, 1), (4, 4), (2, 3), (1, 0), (3, 2))
]
