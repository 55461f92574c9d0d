"""Shape statistics of a corpus, and the names and values that `bench-data describe` prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.contracts.corpus import Corpus
from harness.values.arrays import IntArray
from harness.values.instances import Chain, Lattice, SentencePair, Tree
from harness.values.parsed import LEFT, RIGHT, SHIFT, ParsedSentence

Facts = list[tuple[str, str]]


def facts(corpus: Corpus) -> Facts:
    """Describe a corpus: what it is, the shapes of its instances, its vocabulary, its checksum."""
    describe = DESCRIBED.get(corpus.instance_kind)
    skipped = ", ".join(f"{count} {reason}" for reason, count in corpus.skipped.items())
    return [
        ("dataset", f"{corpus.name}, {corpus.split}"),
        ("source", corpus.source),
        ("synthetic", "yes" if corpus.synthetic else "no"),
        ("instances", f"{len(corpus.instances)} ({corpus.instance_kind})"),
        *([("left out", skipped)] if skipped else []),
        *(describe(corpus, corpus.instances[:]) if describe else []),
        ("sha256", corpus.sha256),
    ]


def _tree_facts(corpus: Corpus, trees: Sequence[Tree]) -> Facts:
    shapes = tree_shapes(trees, corpus.size("classes"))
    n_internal = shapes.n_vertices - shapes.n_leaves
    return [
        ("vertices", f"{shapes.n_vertices}, {shapes.n_leaves} leaves and {n_internal} internal"),
        ("leaves", f"mean {shapes.leaves_mean:.2f}, max {shapes.leaves_max}"),
        ("height", f"mean {shapes.height_mean:.2f}, max {shapes.height_max}"),
        ("vocabulary", f"{corpus.size('words')} rows, {shapes.n_words_used} used in this split"),
        ("labels", _shares(shapes.label_shares)),
    ]


def _lattice_facts(corpus: Corpus, lattices: Sequence[Lattice]) -> Facts:
    shapes = lattice_shapes(lattices, corpus.size("classes"))
    spread = f"min {shapes.states_min}, max {shapes.states_max}"
    words_used = f"{shapes.n_words_used} used in this split"
    characters_used = f"{shapes.n_characters_used} used in this split"
    per_character = shapes.n_words / shapes.n_characters
    return [
        ("states", f"{shapes.n_states}, mean {shapes.states_mean:.2f}, {spread}"),
        ("arcs", f"{shapes.n_characters} characters and {shapes.n_words} words"),
        ("words per character", f"{per_character:.3f}"),
        ("arcs into a state", _counts(shapes.arcs_into)),
        ("word lengths", _counts(shapes.word_lengths)),
        ("words", f"{corpus.size('words')} rows, {words_used}"),
        ("characters", f"{corpus.size('characters')} rows, {characters_used}"),
        ("labels", _shares(shapes.label_shares)),
    ]


def _chain_facts(corpus: Corpus, chains: Sequence[Chain]) -> Facts:
    words = np.concatenate([chain.words for chain in chains])
    labels = np.concatenate([chain.labels for chain in chains])
    found = [
        ("words", _lengths([chain.n_words for chain in chains])),
        ("vocabulary", _rows(corpus, "words", words)),
    ]
    if "characters" in corpus.sizes:
        letters = np.concatenate([np.diff(chain.char_start) for chain in chains])
        spelled = letters[letters > 0]
        share = f"{len(spelled)}, {len(spelled) / len(letters):.1%} of all"
        used = np.concatenate([chain.characters for chain in chains])
        found.append(("rare words", f"{share}, spelled out"))
        if len(spelled):
            found.append(("their letters", _lengths(spelled)))
            found.append(("characters", _rows(corpus, "characters", used)))
    if "classes" in corpus.sizes:
        counts = np.sort(np.bincount(labels, minlength=corpus.size("classes")))[::-1]
        most = ", ".join(f"{count / counts.sum():.1%}" for count in counts[:5].tolist())
        found.append(("labels", f"{corpus.size('classes')}, the most frequent {most}"))
    else:
        found.append(("labels", "the next word"))
    return found


def _pair_facts(corpus: Corpus, pairs: Sequence[SentencePair]) -> Facts:
    source = np.concatenate([pair.source for pair in pairs])
    target = np.concatenate([pair.target for pair in pairs])
    return [
        ("source words", _lengths([len(pair.source) for pair in pairs])),
        ("target words", _lengths([len(pair.target) for pair in pairs])),
        ("decoder steps", str(sum(pair.n_steps for pair in pairs))),
        ("source vocabulary", _rows(corpus, "source_words", source)),
        ("target vocabulary", _rows(corpus, "target_words", target)),
    ]


def _parsed_facts(corpus: Corpus, parsed: Sequence[ParsedSentence]) -> Facts:
    kinds = np.bincount(np.concatenate([one.kinds for one in parsed]), minlength=3)
    named = (("shifts", SHIFT), ("left", LEFT), ("right", RIGHT))
    steps = ", ".join(f"{kinds[kind]} {name}" for name, kind in named)
    words = np.concatenate([one.words for one in parsed])
    tags = np.concatenate([one.tags for one in parsed])
    relations = np.concatenate([one.relations for one in parsed])
    return [
        ("words", _lengths([len(one.heads) for one in parsed])),
        ("transitions", f"{kinds.sum()}: {steps}"),
        ("vocabulary", _rows(corpus, "words", words)),
        ("parts of speech", _rows(corpus, "tags", tags)),
        ("relations", _rows(corpus, "relations", relations)),
    ]


def _lengths(lengths: Sequence[int] | IntArray) -> str:
    """Total, mean and extremes."""
    found = np.asarray(lengths)
    return f"{found.sum()}, mean {found.mean():.2f}, min {found.min()}, max {found.max()}"


def _rows(corpus: Corpus, size: str, ids: IntArray) -> str:
    return f"{corpus.size(size)} rows, {len(np.unique(ids))} used in this split"


def _shares(shares: Sequence[float]) -> str:
    return ", ".join(f"{label}: {share:.1%}" for label, share in enumerate(shares))


def _counts(counts: Sequence[int]) -> str:
    return ", ".join(f"{value}: {count}" for value, count in enumerate(counts) if count)


DESCRIBED: dict[str, Callable[[Corpus, Any], Facts]] = {
    "tree": _tree_facts,
    "lattice": _lattice_facts,
    "chain": _chain_facts,
    "sentence_pair": _pair_facts,
    "parsed_sentence": _parsed_facts,
}


@dataclass(frozen=True, slots=True)
class TreeShapes:
    """Summary of many trees; label_shares are fractions of all vertices, by label."""

    n_instances: int
    n_vertices: int
    n_leaves: int
    leaves_mean: float
    leaves_max: int
    height_mean: float
    height_max: int
    n_words_used: int
    label_shares: tuple[float, ...]


def tree_shapes(trees: Sequence[Tree], n_classes: int) -> TreeShapes:
    """Measure every tree; height counts edges from the root to the farthest leaf."""
    leaves = np.array([tree.n_leaves for tree in trees])
    heights = np.array([tree.height for tree in trees])
    words = np.concatenate([tree.words for tree in trees])
    labels = np.bincount(np.concatenate([tree.labels for tree in trees]), minlength=n_classes)
    return TreeShapes(
        n_instances=len(trees),
        n_vertices=len(words),
        n_leaves=int(leaves.sum()),
        leaves_mean=float(leaves.mean()),
        leaves_max=int(leaves.max()),
        height_mean=float(heights.mean()),
        height_max=int(heights.max()),
        n_words_used=len(np.unique(words[words >= 0])),
        label_shares=tuple((labels / labels.sum()).tolist()),
    )


@dataclass(frozen=True, slots=True)
class LatticeShapes:
    """Summary of many lattices; label_shares are fractions of all states, by tag.

    arcs_into[n]: states with n incoming arcs; state 0 has none.
    word_lengths[n]: words of n characters, by where their arcs begin and end.
    """

    n_instances: int
    n_states: int
    n_characters: int
    n_words: int
    states_mean: float
    states_min: int
    states_max: int
    arcs_into: tuple[int, ...]
    word_lengths: tuple[int, ...]
    n_characters_used: int
    n_words_used: int
    label_shares: tuple[float, ...]


def lattice_shapes(lattices: Sequence[Lattice], n_classes: int) -> LatticeShapes:
    """Measure every lattice."""
    states = np.array([lattice.n_states for lattice in lattices])
    arcs_into = [np.diff(lattice.arc_start) for lattice in lattices]
    targets = np.concatenate([np.arange(len(n)).repeat(n) for n in arcs_into])
    sources = np.concatenate([lattice.sources for lattice in lattices])
    tokens = np.concatenate([lattice.tokens for lattice in lattices])
    is_word = ~np.concatenate([lattice.is_character for lattice in lattices])
    labels = np.bincount(
        np.concatenate([lattice.tags for lattice in lattices]), minlength=n_classes
    )
    return LatticeShapes(
        n_instances=len(lattices),
        n_states=int(states.sum()),
        n_characters=int((~is_word).sum()),
        n_words=int(is_word.sum()),
        states_mean=float(states.mean()),
        states_min=int(states.min()),
        states_max=int(states.max()),
        arcs_into=tuple(np.bincount(np.concatenate(arcs_into)).tolist()),
        word_lengths=tuple(np.bincount((targets - sources)[is_word]).tolist()),
        n_characters_used=len(np.unique(tokens[~is_word])),
        n_words_used=len(np.unique(tokens[is_word])),
        label_shares=tuple((labels / labels.sum()).tolist()),
    )
