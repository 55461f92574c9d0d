"""Columns of a mini-batch: its instances' arrays, concatenated, as a program in C++ reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.models.parser import Parser
from dynbatch.harness.values.arrays import IntArray, as_int_array
from dynbatch.harness.values.instances import Chain, Lattice, SentencePair, Tree
from dynbatch.harness.values.parsed import ParsedSentence

Columns = tuple[IntArray, ...]


def build_tree_columns(_: Model, trees: Sequence[Tree]) -> Columns:
    """Return sizes of the trees, and words, labels and children of all their vertices.

    Children are numbered within their tree. Sizes have the shape (n_trees,), all others
    (n_vertices,).
    """
    sizes = [tree.n_vertices for tree in trees]
    return as_int_array(sizes), *np.concatenate([tree.table for tree in trees], axis=1)


def build_lattice_columns(_: Model, lattices: Sequence[Lattice]) -> Columns:
    """Return the columns of lattices: numbers of states, tags, arc counts, sources and tokens.

    Sources are numbered within their lattice. Shapes: numbers of states (n_lattices,), tags and
    numbers of arcs (n_states,), sources and tokens (n_arcs,). The first arc into a state is its
    character.
    """
    names = ("tags", "arc_counts", "sources", "tokens")
    joined = (np.concatenate([getattr(lattice, name) for lattice in lattices]) for name in names)
    return as_int_array([lattice.n_states for lattice in lattices]), *joined


def build_chain_columns(_: Model, chains: Sequence[Chain]) -> Columns:
    """Return numbers of words, words and labels, numbers of letters, and the letters.

    Shapes: numbers of words (n_sentences,), words, labels and numbers of letters (n_words,),
    letters (n_letters,). Only rare words have letters.
    """
    n_letters = [np.diff(chain.char_start) for chain in chains]
    joined = (
        np.concatenate([getattr(chain, name) for chain in chains])
        for name in ("words", "labels", "characters")
    )
    words, labels, letters = joined
    sizes = as_int_array([chain.n_words for chain in chains])
    return sizes, words, labels, as_int_array(np.concatenate(n_letters)), letters


def build_pair_columns(_: Model, pairs: Sequence[SentencePair]) -> Columns:
    """Return lengths and words of the sources, then of the targets.

    Shapes: lengths (n_pairs,), words (n_words,). Words include sentence marks.
    """
    sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
    n_source, n_target = (as_int_array([len(words) for words in side]) for side in sides)
    return n_source, np.concatenate(sides[0]), n_target, np.concatenate(sides[1])


def build_parsed_columns(model: Parser, sentences: Sequence[ParsedSentence]) -> Columns:
    """Return numbers of tokens, words, tags, numbers of transitions, their features and labels.

    Features are tokens, numbered within their sentence, or -1 if there is none. Shapes: numbers of
    tokens and of transitions (n_sentences,), words and tags (n_tokens,), features (n_transitions *
    N_FEATURES,), labels (n_transitions,).
    """
    words, tags, features, kinds, arcs = (
        np.concatenate([getattr(sentence, name) for sentence in sentences])
        for name in ("words", "tags", "features", "kinds", "arcs")
    )
    n_tokens = as_int_array([sentence.n_tokens for sentence in sentences])
    n_transitions = as_int_array([sentence.n_transitions for sentence in sentences])
    labels = model.index_scores(kinds, arcs)
    return n_tokens, words, tags, n_transitions, features.reshape(-1), labels
