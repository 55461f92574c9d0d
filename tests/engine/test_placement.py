"""Where values live: every node inside a buffer, and none in the place of what is read later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.contracts.model import traced_functions
from harness.engine.backends.compiled.backend import Backend
from harness.engine.lowering.analysis import Uses, find_uses
from harness.engine.lowering.placement import Placement, Placer, place
from harness.engine.lowering.plan import Buffer, BufferName, Memory, Ref, Role
from harness.vertex.autodiff import differentiate
from tests.support.engine_models import EXAMPLES

NAME = BufferName(Role.NODE, "0")
BUFFER = Buffer(NAME, Memory.SCRATCH, 4, "vertex")


def _uses(model: str, name: str) -> Uses:
    """Uses of a function and its gradient, as lowering finds them without fusion."""
    function = traced_functions(EXAMPLES[model][0])[name]
    gradient = differentiate(function)
    abilities = Backend.abilities.without_fusion()
    return find_uses(function, gradient, abilities, lazy_batching=True, hoisting=True)


@pytest.mark.parametrize(
    "ref", [Ref(BufferName(Role.NODE, "1"), 0, 4), Ref(NAME, 1, 4), Ref(NAME, -1, 2)]
)
def test_a_node_outside_of_all_buffers_is_refused(ref: Ref) -> None:
    good = Placement({0: Ref(NAME, 0, 4)}, {NAME: BUFFER}, {}, (), ())
    with pytest.raises(ValueError, match=r"nodes \[1\] lie outside of all buffers"):
        replace(good, refs={**good.refs, 1: ref})


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
            placer = Placer(uses)
            placer.place_alone(operand)
            placer.place_value(i)
            if placer.refs[i] == placer.refs[operand]:
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
