"""Where values live: every node inside a buffer, and nothing placed is changed by what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.contracts.model import traced_functions
from harness.engine.backends.compiled.backend import Backend
from harness.engine.lowering.analysis import (
    Losses,
    Uses,
    find_absorption,
    find_results,
    find_uses,
    stage_program,
)
from harness.engine.lowering.fusion import order_stage
from harness.engine.lowering.placement import Placed, Placement, place, place_alone, place_value
from harness.engine.lowering.plan import STAGES, Buffer, BufferName, Memory, Ref, Role
from harness.vertex.autodiff import differentiate
from tests.support.engine_models import EXAMPLES

NAME = BufferName(Role.NODE, "0")
BUFFER = Buffer(NAME, Memory.SCRATCH, 4, "vertex")


def _uses(model: str, name: str) -> Uses:
    """Uses of a function and its gradient, as lowering finds them without fusion."""
    function = traced_functions(EXAMPLES[model][0])[name]
    gradient = differentiate(function)
    nodes = gradient.nodes
    staging = stage_program(function, gradient, nodes, lazy_batching=True, hoisting=True)
    results, stage_of = find_results(function, gradient), staging.stage_of()
    absorption = find_absorption(nodes, stage_of, results.all, results.scattered, absorb_bias=True)
    groups = [
        group
        for stage in STAGES
        for group in order_stage(nodes, getattr(staging, stage), absorption, fuse=False)
    ]
    abilities = Backend.abilities.without_fusion()
    return find_uses(nodes, results, stage_of, groups, absorption, abilities, Losses({}))


@pytest.mark.parametrize(
    "ref", [Ref(BufferName(Role.NODE, "1"), 0, 4), Ref(NAME, 1, 4), Ref(NAME, -1, 2)]
)
def test_a_node_outside_of_all_buffers_is_refused(ref: Ref) -> None:
    good = Placement({0: Ref(NAME, 0, 4)}, {NAME: BUFFER}, {}, (), ())
    with pytest.raises(ValueError, match=r"nodes \[1\] lie outside of all buffers"):
        replace(good, refs={**good.refs, 1: ref})


def test_a_step_leaves_what_it_was_given() -> None:
    before = Placed({0: Ref(NAME, 0, 4)}, {NAME: BUFFER})
    refs, buffers = dict(before.refs), dict(before.buffers)
    other = BufferName(Role.NODE, "1")
    after = before.having(replace(BUFFER, name=other)).at(1, Ref(other, 0, 4))
    assert (before.refs, before.buffers) == (refs, buffers)
    assert after == Placed({**refs, 1: Ref(other, 0, 4)}, {**buffers, other: after.buffers[other]})
    assert before.joined(after) == after


@pytest.mark.parametrize("model", ["tree_lstm", "matrices", "lattice_lstm"])
def test_placing_twice_gives_the_same(model: str) -> None:
    for name in EXAMPLES[model][0].vertex_types:
        uses = _uses(model, name)
        assert place(uses, {}) == place(uses, {})


def _in_place(uses: Uses) -> list[tuple[int, int]]:
    """Nodes and the operand over which each is computed, where the operand lies alone."""
    found = []
    for i in range(len(uses.nodes)):
        for operand in uses.nodes[i].inputs:
            if uses.is_slice(operand) or operand not in uses.stage_of or i not in uses.stage_of:
                continue
            placed = place_alone(uses, Placed(), operand)
            if place_value(uses, placed, i).refs[i] == placed.refs[operand]:
                found.append((i, operand))
    return found


def test_only_the_last_reader_takes_an_operands_place() -> None:
    uses = _uses("tree_lstm", "internal")
    taken = [pair for pair in _in_place(uses) if pair[0] not in uses.absorption.merged]
    assert taken
    for i, operand in taken:
        assert list(uses.consumers[operand]) == [i]
        assert operand not in uses.kept
        assert uses.stage_of[operand] == uses.stage_of[i]
