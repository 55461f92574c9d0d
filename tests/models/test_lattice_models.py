"""Graphs of lattices, and values of lattice models."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dynbatch.harness.contracts.model import ModelSizes, draw_initial_weights
from dynbatch.harness.models.gated_lattice_lstm import GatedLatticeLSTM
from dynbatch.harness.models.lattice_gru import LatticeGRU
from dynbatch.harness.models.lattice_lstm import LatticeLSTM
from dynbatch.harness.models.parts.lattices import PULLS, TYPE_NAMES, build_lattice_mini_batch
from dynbatch.harness.reference import run_reference
from dynbatch.harness.values.instances import Lattice
from tests.support.instances import lattice as grid


def test_states_of_the_longest_lattices_stay_small() -> None:
    words = [(end - 2 - end % 2, end) for end in range(3, 200)]
    sizes = ModelSizes(16, {"words": 8, "characters": 8, "classes": 4})
    for kind in (LatticeLSTM, LatticeGRU, GatedLatticeLSTM):
        model = kind(sizes)
        result = run_reference(model, draw_initial_weights(model, 0), [grid(words, 200)], "train")
        assert np.abs(result.outputs).max() < 100, kind.name
        assert max(np.abs(gradient).max() for gradient in result.gradients.values()) < 1e5, (
            kind.name
        )


def test_initial_weights_may_have_a_mean_for_each_part() -> None:
    model = LatticeGRU(ModelSizes(4, {"words": 8, "characters": 8, "classes": 4}))
    r, z, n = np.split(draw_initial_weights(model, 0)["b_char"], 3)
    assert np.abs(z + 2.0).max() <= 0.1 + 1e-6
    assert max(np.abs(r).max(), np.abs(n).max()) <= 0.1 + 1e-6


def list_vertices(instances: Sequence[Lattice]) -> list[tuple[str, list[int], tuple[int, ...]]]:
    """Return type, arguments and pulls of every vertex, state by state."""
    vertices: list[tuple[str, list[int], tuple[int, ...]]] = []
    for one in instances:
        last: list[int] = []  # the vertex of each state
        for state, tag in enumerate(one.tags.tolist()):
            arcs = range(one.arc_start[state], one.arc_start[state + 1])
            cells = [
                (
                    "word" if k else "char",
                    [last[one.sources[arc]]],
                    (-1, int(one.tokens[arc])) if k else (int(one.tokens[arc]), -1),
                )
                for k, arc in enumerate(arcs)
            ]
            first = len(vertices)
            vertices += [(name, args, (*tokens, -1)) for name, args, tokens in cells]
            if len(cells) != 1:
                joined = list(range(first, first + len(cells)))
                vertices.append(("join" if cells else "start", joined, (-1, -1, -1)))
            name, args, pulls = vertices[-1]
            vertices[-1] = name, args, (*pulls[:2], tag)
            last.append(len(vertices) - 1)
    return vertices


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(2, 4)), max_size=6), min_size=1))
def test_vertices_of_lattices_are_those_of_their_arcs(
    lattices: list[list[tuple[int, int]]],
) -> None:
    instances = [grid(sorted({(a, a + n) for a, n in words}), 10) for words in lattices]
    mini_batch = build_lattice_mini_batch(instances)
    graph, expected = mini_batch.graph, list_vertices(instances)
    assert [TYPE_NAMES[k] for k in graph.types] == [name for name, _, _ in expected]
    args = [graph.args[a:b].tolist() for a, b in pairwise(graph.arg_start)]
    assert args == [args for _, args, _ in expected]
    pulls = zip(*(mini_batch.pulls[name].tolist() for name in PULLS), strict=True)
    assert list(pulls) == [pulls for _, _, pulls in expected]
    assert [k for k, (_, _, (*_, tag)) in enumerate(expected) if tag >= 0] == list(
        mini_batch.outputs
    )
