"""Statistics of a corpus, as the names and values that `bench-data describe` prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynbatch.harness.contracts.corpus import MAX_CHILDREN, Corpus
from dynbatch.harness.values.arrays import IntArray
from dynbatch.harness.values.instances import Chain, Lattice, NaryTree, SentencePair, Tree
from dynbatch.harness.values.parsed import LEFT, RIGHT, SHIFT, ParsedSentence

Facts = list[tuple[str, str]]


def describe_corpus(corpus: Corpus) -> Facts:
    """Describe a corpus: source, statistics of its instances, vocabulary and checksum."""
    describe = DESCRIBED.get(corpus.instance_kind)
    skipped = ", ".join(f"{count} {reason}" for reason, count in corpus.skipped.items())
    return [
        ("dataset", f"{corpus.name}, {corpus.split}"),
        ("source", corpus.source),
        ("synthetic", "yes" if corpus.synthetic else "no"),
        ("instances", f"{len(corpus.instances)} ({corpus.instance_kind})"),
        *([("excluded", skipped)] if skipped else []),
        *(describe(corpus, corpus.instances[:]) if describe else []),
        ("sha256", corpus.sha256),
    ]


def _describe_trees(corpus: Corpus, trees: Sequence[Tree | NaryTree]) -> Facts:
    leaves = np.array([tree.n_leaves for tree in trees])
    heights = np.array([tree.height for tree in trees])  # edges from the root to the farthest leaf
    words = np.concatenate([tree.words for tree in trees])
    n_internal = len(words) - leaves.sum()
    most = corpus.sizes.get(MAX_CHILDREN)
    return [
        ("vertices", f"{len(words)}, {leaves.sum()} leaves and {n_internal} internal"),
        *([("children", f"max {most}")] if most else []),
        ("leaves", f"mean {leaves.mean():.2f}, max {leaves.max()}"),
        ("height", f"mean {heights.mean():.2f}, max {heights.max()}"),
        ("vocabulary", _format_rows(corpus, "words", words[words >= 0])),
        ("labels", _format_shares(corpus, [tree.labels for tree in trees])),
    ]


def _describe_lattices(corpus: Corpus, lattices: Sequence[Lattice]) -> Facts:
    states = np.array([lattice.n_states for lattice in lattices])
    arcs_into = [np.diff(lattice.arc_start) for lattice in lattices]  # state 0 has none
    targets = np.concatenate([np.arange(len(n)).repeat(n) for n in arcs_into])
    lengths = targets - np.concatenate([lattice.sources for lattice in lattices])  # in characters
    tokens = np.concatenate([lattice.tokens for lattice in lattices])
    is_word = ~np.concatenate([lattice.is_character for lattice in lattices])
    n_words, n_characters = is_word.sum(), (~is_word).sum()
    spread = f"min {states.min()}, max {states.max()}"
    return [
        ("states", f"{states.sum()}, mean {states.mean():.2f}, {spread}"),
        ("arcs", f"{n_characters} characters and {n_words} words"),
        ("words per character", f"{n_words / n_characters:.3f}"),
        ("arcs into a state", _format_counts(np.concatenate(arcs_into))),
        ("word lengths", _format_counts(lengths[is_word])),
        ("words", _format_rows(corpus, "words", tokens[is_word])),
        ("characters", _format_rows(corpus, "characters", tokens[~is_word])),
        ("labels", _format_shares(corpus, [lattice.tags for lattice in lattices])),
    ]


def _describe_chains(corpus: Corpus, chains: Sequence[Chain]) -> Facts:
    words = np.concatenate([chain.words for chain in chains])
    labels = np.concatenate([chain.labels for chain in chains])
    entries = [
        ("words", _format_lengths([chain.n_words for chain in chains])),
        ("vocabulary", _format_rows(corpus, "words", words)),
    ]
    if "characters" in corpus.sizes:
        letters = np.concatenate([np.diff(chain.char_start) for chain in chains])
        spelled = letters[letters > 0]
        share = f"{len(spelled)}, {len(spelled) / len(letters):.1%} of all"
        used = np.concatenate([chain.characters for chain in chains])
        entries.append(("rare words", f"{share}, spelled out"))
        if len(spelled):
            entries.append(("their letters", _format_lengths(spelled)))
            entries.append(("characters", _format_rows(corpus, "characters", used)))
    if "classes" in corpus.sizes:
        counts = np.sort(np.bincount(labels, minlength=corpus.get_size("classes")))[::-1]
        most = ", ".join(f"{count / counts.sum():.1%}" for count in counts[:5].tolist())
        entries.append(("labels", f"{corpus.get_size('classes')}, the most frequent {most}"))
    else:
        entries.append(("labels", "the next word"))
    return entries


def _describe_pairs(corpus: Corpus, pairs: Sequence[SentencePair]) -> Facts:
    source = np.concatenate([pair.source for pair in pairs])
    target = np.concatenate([pair.target for pair in pairs])
    return [
        ("source words", _format_lengths([len(pair.source) for pair in pairs])),
        ("target words", _format_lengths([len(pair.target) for pair in pairs])),
        ("decoder steps", str(sum(pair.n_steps for pair in pairs))),
        ("source vocabulary", _format_rows(corpus, "source_words", source)),
        ("target vocabulary", _format_rows(corpus, "target_words", target)),
    ]


def _describe_parsed(corpus: Corpus, parsed: Sequence[ParsedSentence]) -> Facts:
    kinds = np.bincount(np.concatenate([sentence.kinds for sentence in parsed]), minlength=3)
    named = (("shifts", SHIFT), ("left", LEFT), ("right", RIGHT))
    steps = ", ".join(f"{kinds[kind]} {name}" for name, kind in named)
    words = np.concatenate([sentence.words for sentence in parsed])
    tags = np.concatenate([sentence.tags for sentence in parsed])
    relations = np.concatenate([sentence.relations for sentence in parsed])
    return [
        ("words", _format_lengths([len(sentence.heads) for sentence in parsed])),
        ("transitions", f"{kinds.sum()}: {steps}"),
        ("vocabulary", _format_rows(corpus, "words", words)),
        ("parts of speech", _format_rows(corpus, "tags", tags)),
        ("relations", _format_rows(corpus, "relations", relations)),
    ]


def _format_lengths(lengths: Sequence[int] | IntArray) -> str:
    values = np.asarray(lengths)
    return f"{values.sum()}, mean {values.mean():.2f}, min {values.min()}, max {values.max()}"


def _format_rows(corpus: Corpus, size: str, ids: IntArray) -> str:
    return f"{corpus.get_size(size)} rows, {len(np.unique(ids))} used in this split"


def _format_shares(corpus: Corpus, labels: Sequence[IntArray]) -> str:
    counts = np.bincount(np.concatenate(labels), minlength=corpus.get_size("classes"))
    shares = counts / counts.sum()
    names = corpus.label_names or range(len(shares))
    return ", ".join(f"{name}: {share:.1%}" for name, share in zip(names, shares, strict=True))


def _format_counts(values: IntArray) -> str:
    return ", ".join(
        f"{value}: {count}" for value, count in enumerate(np.bincount(values)) if count
    )


DESCRIBED: dict[str, Callable[[Corpus, Any], Facts]] = {
    "tree": _describe_trees,
    "lattice": _describe_lattices,
    "chain": _describe_chains,
    "sentence_pair": _describe_pairs,
    "parsed_sentence": _describe_parsed,
}
