"""JAX: rows of padded plans, and exact numbers of compiled programs.

All systems are compared with the reference, padded too, in test_systems_agree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest

from dynbatch.harness.compiler.object_code import get_host_target
from dynbatch.harness.contracts.model import Model, draw_initial_weights
from dynbatch.harness.contracts.options import format_options
from dynbatch.harness.reference import run_reference
from dynbatch.systems.on_jax import scan
from dynbatch.systems.on_jax.models.lattice_rows import pad_lattices
from dynbatch.systems.on_jax.models.lstm import lay_out_columns
from dynbatch.systems.on_jax.models.tree_rows import UNIT, assign_tree_rows, halve_width
from dynbatch.systems.on_jax.scan import Adapter
from dynbatch.systems.plans.lattices import plan_lattice_rows
from tests.support.fake_time import NullClock
from tests.support.instances import build, random_instances
from tests.support.run_adapter import (
    SIZES,
    UNEQUAL,
    assert_alike,
    found_by,
    small_settings,
    started,
    trees_of,
    values_of,
)

LENGTHS = ([1], [3, 3], [1, 5, 2, 5], [7, 1, 1, 4, 2] * 5, [2] * 40 + [9] * 3)
CHARACTERS = ((1,), (3, 3), (12, 1, 7, 2), (9, 30, 4, 17) * 5)
LEAVES = ((1,), (1, 1), (2, 9, 1), (30, 4, 25, 17), (40,) * 5)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("n_widths", [1, 3, 8])
def test_every_row_follows_its_own_sentence(lengths: list[int], n_widths: int) -> None:
    """Steps have the widths of their rectangles, and each row comes after its previous word's."""
    sizes, ids = lay_out_columns(np.array(lengths), n_widths, multiple=16)
    starts = np.cumsum(lengths) - lengths
    begins = np.repeat(starts, lengths)
    assert list(sizes.widths) == sorted(sizes.widths, reverse=True)
    assert len(sizes.widths) <= n_widths
    assert (ids["bounds"][0], ids["bounds"][-1]) == (0, max(lengths))
    row = 0
    for width, first, end in zip(sizes.widths, ids["bounds"][:-1], ids["bounds"][1:], strict=True):
        for step in range(first, end):
            assert ids["starts"][step] == row
            going = sum(length > step for length in lengths)
            assert going <= width
            row += width
    assert row <= sizes.n_rows
    for place in range(sum(lengths)):
        at = ids["rows"][place]
        assert ids["places"][at] == place
        assert ids["mirrored"][ids["mirrored_rows"][place]] == place
        before = ids["before"][at] - sizes.widths[0]
        if place == begins[place]:
            assert before < 0
        else:
            assert ids["places"][before] == place - 1


@pytest.mark.parametrize("leaves", LEAVES)
@pytest.mark.parametrize("chunk", [8, 16, 64])
def test_chunks_hold_vertices_that_are_ready(leaves: tuple[int, ...], chunk: int) -> None:
    """Each vertex has one row, in a chunk after those of its children, which have its index."""
    trees, widths = trees_of(leaves), halve_width(chunk, 3)
    sizes, ids, rows = assign_tree_rows(trees, widths, 16)
    n = sum(tree.n_vertices for tree in trees)
    assert len(set(rows.tolist())) == n
    assert np.count_nonzero(ids["labels"] >= 0) == n
    labels = np.concatenate([tree.labels for tree in trees])
    np.testing.assert_array_equal(ids["labels"][rows], labels)
    chunk_of, number, row = np.zeros(sizes.n_inner, int), 0, 0
    for width, first, count in zip(widths, ids["firsts"], ids["counts"], strict=True):
        assert row == first or count == 0
        for _ in range(count):
            number += 1
            chunk_of[row : row + width] = number
            row += width
    start = 0
    for tree, root in zip(trees, ids["roots"], strict=False):
        own = rows[start : start + tree.n_vertices]
        assert own[-1] == root
        assert ids["places"][root] == sizes.n_inner
        for vertex, at in enumerate(own):
            if tree.left[vertex] < 0:
                assert ids["words"][at] == tree.words[vertex]
                continue
            inner = at - sizes.n_leaves
            for side, children in enumerate((tree.left, tree.right)):
                child = own[children[vertex]]
                assert ids[("left", "right")[side]][inner] == child
                assert ids["places"][child] == inner + side * (sizes.n_inner + UNIT)
                if child >= sizes.n_leaves:
                    assert chunk_of[child - sizes.n_leaves] < chunk_of[inner]
        start += tree.n_vertices


def test_a_list_schedule_pads_little() -> None:
    """Chunks are full while enough vertices are ready, because levels are not separated."""
    sizes, ids, _ = assign_tree_rows(trees_of((40,) * 20), halve_width(64, 4), multiple=1)
    assert ids["counts"] @ np.array(sizes.widths) == sizes.n_inner < 1.1 * 20 * 39


@pytest.mark.parametrize("lengths", CHARACTERS)
@pytest.mark.parametrize(("n_widths", "chunks"), [(1, (8,)), (3, (16, 8)), (8, (32, 16, 8))])
def test_every_state_follows_the_arcs_into_it(
    lengths: tuple[int, ...], n_widths: int, chunks: tuple[int, ...]
) -> None:
    """A step writes its states first, then words that start there or earlier and end later."""
    lattices = lattices_of(lengths)
    sizes, ids, rows = pad_lattices(lattices, n_widths, chunks, multiple=16)
    width, n_steps = sizes.widths[0], max(lengths)
    labels = np.concatenate([lattice.tags for lattice in lattices])
    np.testing.assert_array_equal(ids["labels"][rows], labels)
    assert len(set(rows.tolist())) == np.count_nonzero(ids["labels"] >= 0) == len(labels)
    assert (ids["bounds"][0], ids["bounds"][-1]) == (0, n_steps)
    counts = ids["word_counts"].reshape(-1, len(chunks))
    step_of, word_step = np.full(width + sizes.n_rows, -1), np.full(sizes.n_words, -1)
    at, word = width, 0
    for w, first, end in zip(sizes.widths, ids["bounds"][:-1], ids["bounds"][1:], strict=True):
        for step in range(first, end):
            assert (ids["starts"][step], ids["word_starts"][step]) == (at, word)
            step_of[at : at + w] = step
            n_words = counts[step] @ np.array(chunks)
            word_step[word : word + n_words] = step
            at, word = at + w, word + n_words
    assert at < width + sizes.n_rows  # words of padding end at the last row
    own = np.flatnonzero(ids["targets"] < width + sizes.n_rows - 1)
    assert np.all(step_of[ids["sources"][own]] <= word_step[own])
    assert np.all(word_step[own] < step_of[ids["targets"][own]])
    assert set(ids["targets"]) - set(ids["targets"][own]) <= {width + sizes.n_rows - 1}
    plan = plan_lattice_rows(lattices)
    state_of = {row: state for state, row in enumerate(rows.tolist())}
    expected = zip(plan.words, plan.order[plan.sources], plan.order[plan.targets], strict=True)
    sources, targets = ([state_of[row] for row in ids[x][own]] for x in ("sources", "targets"))
    assert sorted(zip(ids["words"][own], sources, targets, strict=True)) == sorted(expected)
    for row in rows[step_of[rows] >= 0]:
        assert state_of[ids["before"][row - width]] == state_of[row] - 1


def lattices_of(lengths: tuple[int, ...]) -> list[Any]:
    return random_instances("lattice", lengths, UNEQUAL, seed=len(lengths))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_loops_over_lattices_copy_no_table(mode: str) -> None:
    """XLA copies a whole table in every iteration that may read it after writing to it."""
    system = started(Adapter, build("lattice_lstm", UNEQUAL), mode, chunk=16, widths=2, multiple=64)
    lattices = lattices_of((9, 30, 4, 17))
    system.compile_for(lattices)
    (program,) = system._programs.values()
    bodies, _, _ = program.as_text().partition("ENTRY")
    n_rows = system._network.plan(lattices).sizes.n_rows
    copied = [int(n) for n in re.findall(r"= f32\[(\d+),\d+\]\S* copy\(", bodies)]
    assert max(copied, default=0) < n_rows


@pytest.mark.slow
def test_lattices_of_other_lengths_compile_no_program() -> None:
    model = build("lattice_lstm", UNEQUAL)
    system, weights = started(Adapter, model, "infer", widths=1), draw_initial_weights(model, 0)
    for lengths in ((9, 3, 4), (12, 2), (1, 1, 1, 1)):
        lattices = lattices_of(lengths)
        expected = run_reference(model, weights, lattices, "infer")
        assert_alike(found_by(system, lattices), values_of(expected))
    assert system.n_compilations() == 1


@pytest.mark.slow
def test_programs_are_counted_and_new_lengths_compile_none() -> None:
    model = build("var_lstm", SIZES)
    system = started(Adapter, model, widths=1, multiple=16)
    few, others, many = (
        random_instances("chain", lengths, SIZES, 0, 0.0)
        for lengths in ((4, 2, 3), (1, 1, 8, 2), (4, 2, 3, 20))
    )
    assert system.n_compilations() == 0
    for instances, n in ((few, 1), (others, 1), (many, 2), (few, 2)):
        system.compile_for(instances)
        assert system.n_compilations() == n
    for instances in (few, others, many):
        system.load(instances)
        system.run(NullClock())
    assert system.n_compilations() == 2
    with pytest.raises(RuntimeError, match=r"call run\(update=False\) before result"):
        system.result()
    found_by(system, few)  # the correctness check does the same before passes
    assert system.n_compilations() == 3
    system.run(NullClock())
    assert system.n_compilations() == 3


def test_the_clock_waits_for_loss_and_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr(jax, "block_until_ready", waited.append)
    system = Adapter(small_settings())
    system.synchronize()  # before any work
    model = build("var_lstm", SIZES)
    weights = draw_initial_weights(model, seed=0)
    system.prepare(model, weights)
    system.load(random_instances("chain", (1,), SIZES, 0, 0.0))
    system.run(NullClock())
    system.synchronize()
    assert len(jax.tree.leaves(waited[1])) == 1 + len(weights)


@pytest.mark.slow
def test_every_leaf_of_cavs_has_its_product() -> None:
    """XLA knows the zeros of leaves at compile time, but must not omit their matmul.

    XLA counts the body of a loop once: here it has one iteration, because all inner vertices are
    roots.
    """
    trees, h = trees_of((2,) * 8), SIZES.hidden_size
    n_flops = 2 * sum(tree.n_vertices for tree in trees) * 2 * h * h
    assert flops_of(build("tree_fc", SIZES, variant="cavs"), trees) >= n_flops
    assert flops_of(build("tree_fc", SIZES, variant="fold"), trees) < n_flops  # leaves are lookups


def flops_of(model: Model, trees: Sequence[Any]) -> float:
    system = started(Adapter, model, "infer", chunk=8, widths=1, multiple=1)
    system.compile_for(trees)
    (program,) = system._programs.values()
    return program.cost_analysis()["flops"]


@pytest.mark.slow
def test_trees_of_single_leaves_use_the_program_of_others() -> None:
    model, leaves = build("tree_lstm", SIZES), trees_of((1, 1))
    system = started(Adapter, model, chunk=16, widths=2, multiple=64)
    system.compile_for(trees_of((9, 1, 14, 3, 8)))
    found = found_by(system, leaves)
    assert system.n_compilations() == 2  # a step, and gradients
    system.compile_for(leaves)
    assert system.n_compilations() == 2
    expected = run_reference(model, draw_initial_weights(model, seed=0), leaves, "train")
    assert_alike(found, values_of(expected))


def test_effective_options_and_versions_are_recorded() -> None:
    system = started(Adapter, build("var_lstm", SIZES))
    ways = {"matmul precision": "highest", "threads of XLA": "1"}
    ways |= scan.choose_compiler_options("cpu")
    assert system.effective_options() == format_options(system.options) | ways
    assert set(system.versions()) == {"jax", "jaxlib", "xla"}


@pytest.mark.parametrize(
    ("platform", "features", "width"),
    [
        ("cpu", "+avx2,+avx512f", "512"),
        ("cpu", "+avx2,-avx512f", None),
        ("gpu", "+avx2,+avx512f", None),
    ],
)
def test_vectors_are_wide_on_every_cpu_with_avx512(
    monkeypatch: pytest.MonkeyPatch, platform: str, features: str, width: str | None
) -> None:
    """XLA refuses to compile with an option that it does not know, of any platform."""
    monkeypatch.setenv("BENCH_CPU_FEATURES", features)
    monkeypatch.setattr(scan, "get_host_target", get_host_target.__wrapped__)
    options = scan.choose_compiler_options(platform)
    assert options.get("xla_cpu_prefer_vector_width") == width
    model = build("tree_fc", SIZES, variant="cavs")
    system = started(Adapter, model, "infer", chunk=8, widths=1)
    is_wide = "xla_cpu_prefer_vector_width" in system.effective_options()
    assert is_wide == ("+avx512f" in features)
    system._compiler_options = options
    system.compile_for(trees_of((2, 3)))
    assert system.n_compilations() == 1


@pytest.mark.parametrize(("mode", "reported"), [("train", ()), ("infer", ("forward",))])
def test_phases_of_one_program_are_not_separable(mode: str, reported: tuple[str, ...]) -> None:
    assert Adapter(small_settings(mode)).phases == ("construct", *reported)


def test_missing_model_is_reported() -> None:
    model = build("var_lstm", SIZES)
    assert Adapter.skip(model, small_settings()) is None
    model.name = "of_nobody"
    reason = Adapter.skip(model, small_settings())
    assert reason.startswith("dynbatch.systems.on_jax.models:NETWORKS has no model of_nobody; ")


def test_it_keeps_its_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(scan, "keep_programs", lambda: asked.append(True))
    started(Adapter, build("var_lstm", SIZES))
    assert asked
