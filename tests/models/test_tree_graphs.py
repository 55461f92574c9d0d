"""Graphs of trees: machine code and NumPy make the same, and neither takes a tree that is none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ScheduleError
from harness.machine import compiled_beside
from harness.models.parts import compiled_trees, trees
from harness.values.graph import Graph
from harness.values.instances import Tree
from tests.support.random_trees import trees as drawn

FIELDS = ("types", "arg_start", "args", "follows", "cheap")


@settings(deadline=None)  # compiled by the first
@given(st.lists(drawn(), min_size=1, max_size=5), st.sampled_from(["all", "roots"]))
def test_machine_code_makes_the_graph_that_numpy_makes(
    instances: Sequence[Tree], outputs: str
) -> None:
    compiled = trees.tree_mini_batch(instances, outputs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_beside, "COMPILER", "none such")
        plain = trees.tree_mini_batch(instances, outputs)
    for name in FIELDS:
        one, other = (getattr(found.graph, name) for found in (compiled, plain))
        assert (one.dtype, one.tolist()) == (other.dtype, other.tolist()), name
        assert (one.flags.c_contiguous, one.flags.writeable) == (True, False), name
    assert compiled.outputs.tolist() == plain.outputs.tolist()
    assert compiled.outputs.dtype == plain.outputs.dtype
    assert {k: v.tolist() for k, v in compiled.pulls.items()} == {
        k: v.tolist() for k, v in plain.pulls.items()
    }


@pytest.mark.parametrize("compiler", ["numba", "none such"])
@pytest.mark.parametrize("children", [(2, 0), (0, 3), (-1, 0), (0, -2)])
def test_a_child_that_does_not_come_first_is_refused(
    compiler: str, children: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_beside, "COMPILER", compiler)
    tree = object.__new__(Tree)  # a Tree would refuse it by itself
    left, right = children
    table = np.array([[1, 2, -1], [0, 0, 0], [-1, -1, left], [-1, -1, right]], dtype=np.int32)
    object.__setattr__(tree, "table", table)
    if left < 0:  # of an inner vertex the first child says that it is one
        assert trees.tree_mini_batch([tree], "all").graph.types.tolist() == [1, 1, 1]
        return
    with pytest.raises(ScheduleError, match="does not come before"):
        trees.tree_mini_batch([tree], "all")


def test_what_was_proved_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Graph] = []
    monkeypatch.setattr(Graph, "_check", looked.append)
    table = np.array([[1, 2, -1], [0, 0, 0], [-1, -1, 0], [-1, -1, 1]], dtype=np.int32)
    children, sizes = table[trees.LEFT :], np.array([3], dtype=np.int32)
    *arrays, _, is_right = compiled_trees.join(children, sizes, True)
    assert is_right
    Graph.proved(*arrays, trees.TYPE_NAMES)
    assert not looked
    assert trees.join(children, sizes, True)[-1] is False  # NumPy leaves the proof to Graph


def test_making_graphs_loads_no_compiler() -> None:
    lines = (
        "import sys, numpy as np",
        "from harness.models.parts import trees",
        "from harness.values.instances import Tree, int_array",
        "trees.tree_mini_batch([Tree(*map(int_array, ([1], [0], [-1], [-1])))], 'all')",
        "sys.exit('numba' in sys.modules)",
    )
    assert subprocess.run([sys.executable, "-c", "\n".join(lines)], check=False).returncode == 0
