"""Typed graphs of mini-batches of lattices; shared by all lattice models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.models.parts.chains import NONE, build_pull
from dynbatch.harness.values.arrays import IntArray, IntTable
from dynbatch.harness.values.graph import Graph, MiniBatch
from dynbatch.harness.values.instances import ARC_ROWS, STATE_ROWS, Lattice

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
    states, arcs, n_states = _concatenate(instances)
    n_arcs, tags = states
    source, token = arcs
    total = np.array([lattice.n_arcs for lattice in instances], dtype=np.int32)
    source += (np.cumsum(n_states, dtype=np.int32) - n_states).repeat(total)
    target = np.arange(len(n_arcs), dtype=np.int32).repeat(n_arcs)
    first = np.cumsum(n_arcs, dtype=np.int32) - n_arcs
    rank = np.arange(len(source), dtype=np.int32) - first[target]
    return Arcs(n_arcs, tags, target, source, token, rank)


def _concatenate(instances: Sequence[Lattice]) -> tuple[IntArray, IntArray, IntArray]:
    """Return all states (2, s), all arcs (2, a), and the number of states of each lattice (k,)."""
    states = [lattice.states for lattice in instances]
    n_states = np.array([table.shape[1] for table in states], dtype=np.int32)
    arcs = [lattice.arcs for lattice in instances]
    return np.concatenate(states, axis=1), np.concatenate(arcs, axis=1), n_states


def build_lattice_mini_batch(instances: Sequence[Lattice]) -> MiniBatch:
    """Build a cell per arc, which reads the state at its source, and a join of a state's cells.

    A state without arcs is a start vertex; a state with a single arc is that arc's cell. Every
    state is an output. Pulls: character, word, label.
    """
    types, arg_start, args, pulls, state = connect_arcs(*_concatenate(instances))
    return MiniBatch(
        graph=Graph.from_valid_arrays(types, arg_start, args, TYPE_NAMES),
        pulls={name: pulls[k] for k, name in enumerate(PULLS)},
        outputs=state,
        n_instances=len(instances),
    )


PULLS = ("character", "word", "label")
COUNT, TAG = (STATE_ROWS.index(name) for name in ("arc_counts", "tags"))
SOURCE, TOKEN = (ARC_ROWS.index(name) for name in ("sources", "tokens"))


@compiled
def connect_arcs(
    states: IntTable, arcs: IntTable, n_states: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntTable, IntArray]:
    """Return types, arguments, pulls and outputs of `build_lattice_mini_batch`.

    It is compiled because 25 NumPy calls take five times as long for 64 sentences. Arguments come
    first, as the arcs of a `Lattice` start at earlier states.

    Args:
        states: (2, s) and `arcs`: (2, a), see Lattice; arcs start at states of their own lattice.
    """
    n, n_args = 0, 0
    for s in range(states.shape[1]):
        count = states[COUNT, s]
        n += max(count, 1) + (count > 1)
        n_args += count + (count if count > 1 else 0)
    types, arg_start = np.empty(n, np.int32), np.empty(n + 1, np.int32)
    args, pulls = np.empty(n_args, np.int32), np.full((3, n), NONE, np.int32)
    vertex = np.empty(states.shape[1], np.int32)
    arg_start[0] = 0
    v, at, arc, first, s = 0, 0, 0, 0, 0
    for k in range(len(n_states)):
        for _ in range(n_states[k]):
            count = states[COUNT, s]
            for rank in range(count):
                types[v] = CHAR if rank == 0 else WORD
                pulls[0 if rank == 0 else 1, v] = arcs[TOKEN, arc]
                args[at] = vertex[first + arcs[SOURCE, arc]]
                arc, at, v = arc + 1, at + 1, v + 1
                arg_start[v] = at
            if count != 1:
                types[v] = START if count == 0 else JOIN
                for rank in range(count):
                    args[at] = v - count + rank
                    at += 1
                v += 1
                arg_start[v] = at
            vertex[s] = v - 1
            pulls[2, v - 1] = states[TAG, s]
            s += 1
        first = s
    return types, arg_start, args, pulls, vertex


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
