"""Typed graphs of mini-batches of lattices; shared by all lattice models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dynbatch.harness.models.parts.chains import build_pull
from dynbatch.harness.values.arrays import IntArray
from dynbatch.harness.values.graph import Graph, MiniBatch
from dynbatch.harness.values.instances import Lattice

START, CHAR, WORD, JOIN = 1, 2, 3, 4
TYPE_NAMES = ("unbatchable", "start", "char", "word", "join")
GATED_CHAR, GATED_JOIN = 4, 5
GATED_TYPE_NAMES = ("unbatchable", "start", "char", "word", "gated_char", "join")


@dataclass(frozen=True, slots=True)
class Arcs:
    """All lattices of a mini-batch concatenated, with consecutive numbers of states and arcs.

    Attributes:
        n_arcs: (s,), number of arcs into each state.
        tags: (s,).
        target, source, token: (a,), of every arc.
        rank: (a,), index of an arc among those into its state; 0 is the character.
    """

    n_arcs: IntArray
    tags: IntArray
    target: IntArray
    source: IntArray
    token: IntArray
    rank: IntArray


def join_arcs(instances: Sequence[Lattice]) -> Arcs:
    """Concatenate lattices, in few NumPy calls, as this is timed for every mini-batch."""
    n_states = np.array([lattice.n_states for lattice in instances], dtype=np.int32)
    n_arcs = np.concatenate([lattice.arc_counts for lattice in instances])
    source = np.concatenate([lattice.sources for lattice in instances])
    total = np.array([lattice.n_arcs for lattice in instances], dtype=np.int32)
    source += (np.cumsum(n_states, dtype=np.int32) - n_states).repeat(total)
    target = np.arange(len(n_arcs), dtype=np.int32).repeat(n_arcs)
    first = np.cumsum(n_arcs, dtype=np.int32) - n_arcs
    return Arcs(
        n_arcs=n_arcs,
        tags=np.concatenate([lattice.tags for lattice in instances]),
        target=target,
        source=source,
        token=np.concatenate([lattice.tokens for lattice in instances]),
        rank=np.arange(len(source), dtype=np.int32) - first[target],
    )


def build_lattice_mini_batch(instances: Sequence[Lattice]) -> MiniBatch:
    """Build a cell per arc, which reads the state at its source, and a join of a state's cells.

    A state without arcs is a start vertex; a state with a single arc is that arc's cell. Every
    state is an output. Pulls: character, word, label.
    """
    arcs = join_arcs(instances)
    several = arcs.n_arcs > 1
    ends = np.cumsum(np.maximum(arcs.n_arcs, 1) + several, dtype=np.int32)
    state = ends - 1  # the vertex of each state
    cell = (ends - arcs.n_arcs - several)[arcs.target] + arcs.rank
    types = np.full(ends[-1], JOIN, dtype=np.int32)
    types[state[arcs.n_arcs == 0]] = START
    is_char = arcs.rank == 0
    types[cell] = np.where(is_char, CHAR, WORD)
    n_args = np.ones(len(types), dtype=np.int32)
    n_args[types == START] = 0
    n_args[state[several]] = arcs.n_arcs[several]
    args, arg_start = _allocate_args(n_args)
    args[arg_start[cell]] = state[arcs.source]
    in_join = several[arcs.target]
    args[arg_start[state[arcs.target[in_join]]] + arcs.rank[in_join]] = cell[in_join]
    return MiniBatch(
        graph=Graph(types, arg_start, args, TYPE_NAMES),
        pulls={
            "character": build_pull(len(types), (cell[is_char], arcs.token[is_char])),
            "word": build_pull(len(types), (cell[~is_char], arcs.token[~is_char])),
            "label": build_pull(len(types), (state, arcs.tags)),
        },
        outputs=state,
        n_instances=len(instances),
    )


def build_gated_lattice_mini_batch(instances: Sequence[Lattice]) -> MiniBatch:
    """Build a cell per word, and a character cell per state that reads the words that end there.

    Vertices of a state: its words, their join if there are several, its character. A word reads the
    state at its source. A character reads the previous state and, if words end with it, the only
    word or their join. Every state is an output. Pulls: character (of a word: its last), word,
    label.
    """
    arcs = join_arcs(instances)
    n_words = np.maximum(arcs.n_arcs - 1, 0)
    several = n_words > 1
    ends = np.cumsum(n_words + several + 1, dtype=np.int32)
    state = ends - 1
    is_word = arcs.rank > 0
    into, by = arcs.target[is_word], arcs.rank[is_word] - 1
    word = (ends - n_words - several - 1)[into] + by
    types = np.full(ends[-1], GATED_JOIN, dtype=np.int32)
    types[state] = np.where(n_words > 0, GATED_CHAR, np.where(arcs.n_arcs > 0, CHAR, START))
    types[word] = WORD
    n_args = np.ones(len(types), dtype=np.int32)
    n_args[state] = np.minimum(arcs.n_arcs, 2)
    n_args[state[several] - 1] = n_words[several]
    args, arg_start = _allocate_args(n_args)
    args[arg_start[word]] = state[arcs.source[is_word]]
    before = arcs.source[~is_word]
    args[arg_start[state[arcs.target[~is_word]]]] = state[before]
    gated = state[n_words > 0]
    args[arg_start[gated] + 1] = gated - 1  # the only word, or the join after the words
    in_join = several[into]
    args[arg_start[state[into[in_join]] - 1] + by[in_join]] = word[in_join]
    characters = np.full(len(arcs.n_arcs), -1, dtype=np.int32)
    characters[arcs.target[~is_word]] = arcs.token[~is_word]
    return MiniBatch(
        graph=Graph(types, arg_start, args, GATED_TYPE_NAMES),
        pulls={
            "character": build_pull(len(types), (state, characters), (word, characters[into])),
            "word": build_pull(len(types), (word, arcs.token[is_word])),
            "label": build_pull(len(types), (state, arcs.tags)),
        },
        outputs=state,
        n_instances=len(instances),
    )


def _allocate_args(n_args: IntArray) -> tuple[IntArray, IntArray]:
    arg_start = np.zeros(len(n_args) + 1, dtype=np.int32)
    np.cumsum(n_args, out=arg_start[1:])
    return np.empty(arg_start[-1], dtype=np.int32), arg_start
