"""Graphs of trees: compiled code builds the same as NumPy, and rejects invalid trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.models.parts import trees
from dynbatch.harness.models.parts.trees import INTERNAL, LEAF, join
from dynbatch.harness.values.graph import Graph
from dynbatch.harness.values.instances import Tree
from tests.support.random_trees import trees as drawn

FIELDS = ("types", "arg_start", "args")


def joined_by_numpy(instances: Sequence[Tree], outputs: str) -> tuple[list[Any], list[int]]:
    """Return types, starts of each vertex's arguments, the arguments, and outputs."""
    sizes = np.array([tree.n_vertices for tree in instances])
    ends = np.cumsum(sizes)
    children = np.concatenate([tree.table for tree in instances], axis=1)[trees.LEFT :]
    internal = children[0] >= 0
    moved = children + (ends - sizes).repeat(sizes)  # values at leaves have no meaning
    arg_start = [0, *(2 * np.cumsum(internal)).tolist()]
    types = np.where(internal, INTERNAL, LEAF).tolist()
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


def test_validated_graph_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Graph] = []
    monkeypatch.setattr(Graph, "_check", looked.append)
    table = np.array([[1, 2, -1], [0, 0, 0], [-1, -1, 0], [-1, -1, 1]], dtype=np.int32)
    sizes = np.array([3], dtype=np.int32)
    types, arg_start, args, _, is_right = join(table[trees.LEFT :], sizes, True)
    assert is_right
    Graph.from_valid_arrays(types, arg_start, args, trees.TYPE_NAMES)
    assert not looked
