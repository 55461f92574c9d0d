"""What `bench-data describe` prints of a corpus: names and values in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datasets.shape import lattice_shapes, tree_shapes
from harness.contracts.corpus import Corpus
from harness.values.arrays import IntArray
from harness.values.instances import Chain, Instance, Lattice, SentencePair, Tree
from harness.values.parsed import LEFT, RIGHT, SHIFT, ParsedSentence

Facts = list[tuple[str, str]]


def facts(corpus: Corpus) -> Facts:
    """Describe a corpus: what it is, the shapes of its instances, its vocabulary, its checksum."""
    skipped = ", ".join(f"{count} {reason}" for reason, count in corpus.skipped.items())
    return [
        ("dataset", f"{corpus.name}, {corpus.split}"),
        ("source", corpus.source),
        ("synthetic", "yes" if corpus.synthetic else "no"),
        ("instances", f"{len(corpus.instances)} ({corpus.instance_kind})"),
        *([("left out", skipped)] if skipped else []),
        *_shapes(corpus, corpus.instances[:]),
        ("sha256", corpus.sha256),
    ]


def _shapes(corpus: Corpus, instances: Sequence[Instance]) -> Facts:
    """Describe the instances, which are of one kind."""
    trees = [instance for instance in instances if isinstance(instance, Tree)]
    lattices = [instance for instance in instances if isinstance(instance, Lattice)]
    chains = [instance for instance in instances if isinstance(instance, Chain)]
    pairs = [instance for instance in instances if isinstance(instance, SentencePair)]
    parsed = [instance for instance in instances if isinstance(instance, ParsedSentence)]
    return [
        *(_tree_facts(corpus, trees) if trees else []),
        *(_lattice_facts(corpus, lattices) if lattices else []),
        *(_chain_facts(corpus, chains) if chains else []),
        *(_pair_facts(corpus, pairs) if pairs else []),
        *(_parsed_facts(corpus, parsed) if parsed else []),
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
