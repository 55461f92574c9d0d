"""Typed graphs of mini-batches of lattices; shared by all lattice models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.models.parts.chains import NONE
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
        tags: (s,).
        target, source, token: (a,), of every arc.
        rank: (a,), index of an arc among those into its state; 0 is the character.
    """

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
    return Arcs(tags, target, source, token, rank)


def _concatenate(instances: Sequence[Lattice]) -> tuple[IntArray, IntArray, IntArray]:
    """Return all states (2, s), all arcs (2, a), and the number of states of each lattice (k,)."""
    states = [lattice.states for lattice in instances]
    n_states = np.array([table.shape[1] for table in states], dtype=np.int32)
    arcs = [lattice.arcs for lattice in instances]
    return np.concatenate(states, axis=1), np.concatenate(arcs, axis=1), n_states


def build_lattice_mini_batch(instances: Sequence[Lattice], *, gated: bool = False) -> MiniBatch:
    """Build the graph of a mini-batch of lattices.

    A cell per arc reads the state at its source, and a join reads several cells of a state. A state
    is its only cell, its join or, without arcs, a start vertex. Every state is an output. Pulls:
    character, word, label.

    Args:
        gated: a state is the cell of its character, which comes last and also reads the state's
            only word, or the join of its words. Words pull their last character, too.
    """
    types, arg_start, args, pulls, state = connect_arcs(*_concatenate(instances), gated)
    type_names = GATED_TYPE_NAMES if gated else TYPE_NAMES
    return MiniBatch(
        graph=Graph.from_valid_arrays(types, arg_start, args, type_names),
        pulls={name: pulls[k] for k, name in enumerate(PULLS)},
        outputs=state,
        n_instances=len(instances),
    )


PULLS = ("character", "word", "label")
COUNT, TAG = (STATE_ROWS.index(name) for name in ("arc_counts", "tags"))
SOURCE, TOKEN = (ARC_ROWS.index(name) for name in ("sources", "tokens"))


@compiled
def connect_arcs(
    states: IntTable, arcs: IntTable, n_states: IntArray, gated: bool
) -> tuple[IntArray, IntArray, IntArray, IntTable, IntArray]:
    """Return types, arguments, pulls and outputs of `build_lattice_mini_batch`.

    It is compiled because 25 NumPy calls take five times as long for 64 sentences. Arguments come
    first, as the arcs of a `Lattice` start at earlier states.

    Args:
        states: (2, s) and `arcs`: (2, a), see Lattice; arcs start at states of their own lattice.
    """
    first_rank = 1 if gated else 0  # of the cells that are joined
    n, n_args = _count_vertices(states, first_rank)
    types, arg_start = np.empty(n, np.int32), np.empty(n + 1, np.int32)
    args, pulls = np.empty(n_args, np.int32), np.full((3, n), NONE, np.int32)
    vertex = np.empty(states.shape[1], np.int32)
    arg_start[0] = 0
    v, at, arc, first, s = 0, 0, 0, 0, 0
    for k in range(len(n_states)):
        for _ in range(n_states[k]):
            count = states[COUNT, s]
            n_joined = count - first_rank
            for rank in range(first_rank, count):
                types[v] = CHAR if rank == 0 else WORD
                pulls[0 if rank == 0 else 1, v] = arcs[TOKEN, arc + rank]
                if gated:
                    pulls[0, v] = arcs[TOKEN, arc]
                args[at] = vertex[first + arcs[SOURCE, arc + rank]]
                at, v = at + 1, v + 1
                arg_start[v] = at
            if n_joined > 1:
                types[v] = GATED_JOIN if gated else JOIN
                for rank in range(n_joined):
                    args[at + rank] = v - n_joined + rank
                at, v = at + n_joined, v + 1
                arg_start[v] = at
            if gated or count == 0:
                types[v] = START
                if count > 0:
                    types[v] = GATED_CHAR if count > 1 else CHAR
                    pulls[0, v] = arcs[TOKEN, arc]
                    args[at] = vertex[first + arcs[SOURCE, arc]]
                    at += 1
                if count > 1:
                    args[at] = v - 1
                    at += 1
                v += 1
                arg_start[v] = at
            vertex[s] = v - 1
            pulls[2, v - 1] = states[TAG, s]
            arc, s = arc + count, s + 1
        first = s
    return types, arg_start, args, pulls, vertex


@helper
def _count_vertices(states: IntTable, first_rank: int) -> tuple[int, int]:
    """Return the numbers of vertices and of arguments."""
    n, n_args = 0, 0
    for s in range(states.shape[1]):
        count = states[COUNT, s]
        n_joined = count - first_rank
        n += max(count, 1) + (n_joined > 1)
        n_args += count + (n_joined if n_joined > 1 else 0)
        n_args += 1 if first_rank == 1 and count > 1 else 0
    return n, n_args
