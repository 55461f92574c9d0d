"""Graphs of sentences, trees and lattices, as plain code builds them; values of lattice models."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.contracts.model import ModelSizes, draw_initial_weights
from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.models.parts import trees
from dynbatch.harness.models.parts.chains import NONE, VertexBlock, build_block, join_blocks
from dynbatch.harness.models.parts.lattices import PULLS, build_lattice_mini_batch
from dynbatch.harness.reference import run_reference
from dynbatch.harness.values.instances import Lattice, Tree
from tests.support.engine_models import EXAMPLES
from tests.support.instances import build
from tests.support.instances import lattice as grid
from tests.support.random_graphs import trees as drawn


@st.composite
def drawn_blocks(draw: st.DrawFn) -> list[VertexBlock]:
    """Draw blocks of any number of slots, some of them empty."""
    blocks: list[VertexBlock] = []
    for type_id in range(1, draw(st.integers(1, 4)) + 1):
        base = blocks[-1].end if blocks else 0
        n, n_slots = draw(st.integers(0, 5)), draw(st.integers(0, 3)) if base else 0
        args = [[draw(st.integers(NONE, base - 1)) for _ in range(n_slots)] for _ in range(n)]
        blocks.append(
            build_block(base, type_id, np.array(args, dtype=np.int32).reshape(n, n_slots))
        )
    return blocks


@given(drawn_blocks())
def test_joined_blocks_have_the_arguments_that_are_given(blocks: list[VertexBlock]) -> None:
    graph = join_blocks(blocks, ("unbatchable", *"abcd"))
    expected = [[a for a in row if a != NONE] for block in blocks for row in block.args.tolist()]
    assert [graph.select_args(v).tolist() for v in range(graph.n_vertices)] == expected
    assert graph.types.tolist() == [t for block in blocks for t in block.types.tolist()]


def test_a_parser_computes_the_vector_of_missing_tokens_once_per_mini_batch() -> None:
    model, instances = EXAMPLES["parser"]
    assert len(instances) > 1
    graph = model.mini_batch(instances).graph
    assert graph.types.tolist().count(graph.type_names.index("missing")) == 1


# --- trees ---

FIELDS = ("types", "arg_start", "args")


def joined_by_numpy(instances: Sequence[Tree], outputs: str) -> tuple[list[Any], list[int]]:
    """Return types, starts of each vertex's arguments, the arguments, and outputs."""
    sizes = np.array([tree.n_vertices for tree in instances])
    ends = np.cumsum(sizes)
    children = np.concatenate([tree.table for tree in instances], axis=1)[trees.LEFT :]
    internal = children[0] >= 0
    moved = children + (ends - sizes).repeat(sizes)  # values at leaves have no meaning
    arg_start = [0, *(2 * np.cumsum(internal)).tolist()]
    types = np.where(internal, trees.INTERNAL, trees.LEAF).tolist()
    read = range(len(internal)) if outputs == "all" else ends - 1
    return [types, arg_start, moved.T[internal].ravel().tolist()], list(map(int, read))


@settings(deadline=None)  # the first call compiles
@given(st.lists(drawn(), min_size=1, max_size=5), st.sampled_from(["all", "roots"]))
def test_machine_code_makes_the_graph_that_numpy_makes(
    instances: Sequence[Tree], outputs: str
) -> None:
    found = trees.build_tree_mini_batch(instances, outputs)
    arrays = [getattr(found.graph, name) for name in FIELDS]
    assert ([one.tolist() for one in arrays], found.outputs.tolist()) == joined_by_numpy(
        instances, outputs
    )
    for one in (*arrays, found.outputs):
        assert (one.dtype, one.flags.c_contiguous) == (np.int32, True)
    assert not any(one.flags.writeable for one in arrays)
    for name, row in (("word", "words"), ("label", "labels")):
        values = [value for tree in instances for value in getattr(tree, row).tolist()]
        assert found.pulls[name].tolist() == values


@pytest.mark.parametrize("children", [(2, 0), (0, 3), (-1, 0), (0, -2)])
def test_a_child_that_does_not_come_first_is_refused(children: tuple[int, int]) -> None:
    tree = object.__new__(Tree)  # a Tree would reject it
    left, right = children
    table = np.array([[1, 2, -1], [0, 0, 0], [-1, -1, left], [-1, -1, right]], dtype=np.int32)
    object.__setattr__(tree, "table", table)
    if left < 0:  # the first child marks an inner vertex
        assert trees.build_tree_mini_batch([tree], "all").graph.types.tolist() == [1, 1, 1]
        return
    with pytest.raises(ScheduleError, match="does not come before"):
        trees.build_tree_mini_batch([tree], "all")


# --- lattices ---


def test_states_of_the_longest_lattices_stay_small() -> None:
    words = [(end - 2 - end % 2, end) for end in range(3, 200)]
    sizes = ModelSizes(16, {"words": 8, "characters": 8, "classes": 4})
    for name in ("lattice_lstm", "lattice_gru", "gated_lattice_lstm"):
        model = build(name, sizes)
        result = run_reference(model, draw_initial_weights(model, 0), [grid(words, 200)], "train")
        assert np.abs(result.outputs).max() < 100, name
        assert max(np.abs(gradient).max() for gradient in result.gradients.values()) < 1e5, name


def test_initial_weights_may_have_a_mean_for_each_part() -> None:
    model = build("lattice_gru", ModelSizes(4, {"words": 8, "characters": 8, "classes": 4}))
    r, z, n = np.split(draw_initial_weights(model, 0)["b_char"], 3)
    assert np.abs(z + 2.0).max() <= 0.1 + 1e-6
    assert max(np.abs(r).max(), np.abs(n).max()) <= 0.1 + 1e-6


def list_vertices(
    instances: Sequence[Lattice], *, gated: bool
) -> list[tuple[str, list[int], tuple[int, ...]]]:
    """Return type, arguments and pulls of every vertex, state by state."""
    vertices: list[tuple[str, list[int], tuple[int, ...]]] = []
    for one in instances:
        last: list[int] = []  # the vertex of each state
        for state, tag in enumerate(one.tags.tolist()):
            arcs = slice(one.arc_start[state], one.arc_start[state + 1])
            tokens, before = one.tokens[arcs].tolist(), [last[k] for k in one.sources[arcs]]
            chars = [("char", before[:1], (token, -1, -1)) for token in tokens[:1]]
            words = [
                ("word", [source], (tokens[0] if gated else -1, token, -1))
                for source, token in zip(before[1:], tokens[1:], strict=True)
            ]
            joined = words if gated else chars + words
            below = [len(vertices) + k for k in range(len(joined))]
            vertices += joined
            if len(below) > 1:
                vertices.append(("join", below, (-1, -1, -1)))
                below = [len(vertices) - 1]
            if not chars:
                vertices.append(("start", [], (-1, -1, -1)))
            elif gated:
                name = "gated_char" if words else "char"
                vertices.append((name, [*before[:1], *below], (tokens[0], -1, -1)))
            name, args, pulls = vertices[-1]
            vertices[-1] = name, args, (*pulls[:2], tag)
            last.append(len(vertices) - 1)
    return vertices


@pytest.mark.parametrize("gated", [False, True])
@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(2, 4)), max_size=6), min_size=1))
def test_vertices_of_lattices_are_those_of_their_arcs(
    gated: bool, lattices: list[list[tuple[int, int]]]
) -> None:
    instances = [grid(sorted({(a, a + n) for a, n in words}), 10) for words in lattices]
    mini_batch = build_lattice_mini_batch(instances, gated=gated)
    graph, expected = mini_batch.graph, list_vertices(instances, gated=gated)
    assert [graph.type_names[k] for k in graph.types] == [name for name, _, _ in expected]
    args = [graph.args[a:b].tolist() for a, b in pairwise(graph.arg_start)]
    assert args == [args for _, args, _ in expected]
    pulls = zip(*(mini_batch.pulls[name].tolist() for name in PULLS), strict=True)
    assert list(pulls) == [pulls for _, _, pulls in expected]
    assert [k for k, (_, _, (*_, tag)) in enumerate(expected) if tag >= 0] == list(
        mini_batch.outputs
    )
