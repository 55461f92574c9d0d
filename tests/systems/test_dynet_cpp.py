"""DyNet's programs in C++: the arrays that they are given, and what is said where none are built.

That they compute what the oracle computes is proved with all other systems.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from harness.contracts.model import ModelSizes, initial_weights
from harness.contracts.system import RunSettings
from harness.models.lattice_lstm import LatticeLSTM
from harness.models.tree_gru import TreeGRU
from harness.models.tree_lstm import TreeLSTM
from harness.values.instances import Lattice, Tree
from systems.on_dynet import build
from systems.on_dynet.cpp.adapter import (
    N_GATES,
    TABLES,
    Adapter,
    joined,
    lattice_columns,
    pieces,
    tree_columns,
)
from tests.support.run_adapter import random_lattice, random_tree

SIZES = ModelSizes(6, {"words": 11, "characters": 8, "classes": 4}, embedding_size=5)
MODELS = {"tree_lstm": TreeLSTM(SIZES), "lattice_lstm": LatticeLSTM(SIZES)}
SETTINGS = RunSettings("train", "cpu", 1, 2, 0.1, 0)


def test_trees_are_found_again_in_their_columns() -> None:
    rng = np.random.default_rng(0)
    trees = [random_tree(n, SIZES, rng) for n in (1, 5, 2)]
    sizes, *columns = tree_columns(trees)
    assert sizes.tolist() == [1, 9, 3]
    ends = np.cumsum(sizes)
    assert {len(column) for column in columns} == {ends[-1]}
    for tree, end in zip(trees, ends, strict=True):
        words, labels, left, right = (c[end - tree.n_vertices : end] for c in columns)
        found = Tree(words, labels, left, right)  # its children are numbered within it
        assert np.array_equal(found.table, tree.table)


def test_lattices_are_found_again_in_their_columns() -> None:
    rng = np.random.default_rng(1)
    lattices = [random_lattice(n, SIZES, rng) for n in (1, 9, 4)]
    sizes, tags, n_arcs, sources, tokens = lattice_columns(lattices)
    assert sizes.tolist() == [2, 10, 5]
    state = arc = 0
    for lattice in lattices:
        states = slice(state, state + lattice.n_states)
        arcs = slice(arc, arc + lattice.n_arcs)
        starts = np.concatenate([[0], np.cumsum(n_arcs[states])])
        found = Lattice(tags[states], starts, sources[arcs], tokens[arcs])
        for name in ("tags", "arc_start", "sources", "tokens"):
            assert np.array_equal(getattr(found, name), getattr(lattice, name)), name
        state, arc = states.stop, arcs.stop
    assert (state, arc) == (len(tags), len(tokens)) == (len(n_arcs), len(sources))


def test_columns_are_what_c_reads() -> None:
    rng = np.random.default_rng(2)
    for columns in (
        tree_columns([random_tree(3, SIZES, rng)]),
        lattice_columns([random_lattice(3, SIZES, rng)]),
    ):
        assert all(c.dtype == np.int32 and c.flags.c_contiguous and c.ndim == 1 for c in columns)


@pytest.mark.parametrize("name", MODELS)
def test_pieces_are_the_gates_and_are_joined_again(name: str) -> None:
    weights = initial_weights(MODELS[name], seed=0)
    found = {piece.name: piece.values for piece in pieces(weights, N_GATES[name])}
    assert set(TABLES[name]) <= set(found)
    for gated, n in N_GATES[name].items():
        width = weights[gated].shape[-1] // n
        for k in range(n):
            own = weights[gated][..., k * width : (k + 1) * width]
            assert np.array_equal(found[f"{gated}.{k}"], own)
    again = joined(weights, N_GATES[name], lambda piece: found[piece.name])
    assert set(again) == set(weights)
    for weight, values in weights.items():
        assert np.array_equal(again[weight], values), weight


def test_what_is_not_built_is_said_in_one_line(tmp_path: Path) -> None:
    assert build.why_not_built(tmp_path) == (
        "DyNet's source build is not installed; run make dynet-native"
    )
    (tmp_path / "build.json").write_text("{}")
    assert build.why_not_built(tmp_path) == (
        "DyNet's programs in C++ are not built; run make dynet-native"
    )
    (tmp_path / build.PROGRAMS).touch()
    (tmp_path / build.PRODUCT_SIGNATURE).touch()
    facts = tmp_path / build.FACTS
    facts.write_text(json.dumps({"sources_sha256": "of other sources"}))
    assert build.why_not_built(tmp_path) == (
        "DyNet's programs in C++ were built from other sources than these; run make dynet-native"
    )
    facts.write_text(json.dumps({"sources_sha256": build.sources_sha256()}))
    assert build.why_not_built(tmp_path) is None


def test_the_hash_of_the_sources_sees_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a.cc").write_text("int a;")
    first = build.sources_sha256(tmp_path)
    (tmp_path / "a.cc").write_text("int b;")
    second = build.sources_sha256(tmp_path)
    (tmp_path / "a.cc").rename(tmp_path / "b.cc")
    assert len({first, second, build.sources_sha256(tmp_path)}) == 3


def test_a_model_without_a_program_is_skipped() -> None:
    reason = Adapter.skip(TreeGRU(ModelSizes(6, {"words": 11, "classes": 4})), SETTINGS)
    assert reason == (
        "model tree_gru is not written for DyNet in C++; it runs lattice_lstm, tree_lstm"
    )
