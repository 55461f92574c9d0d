"""What the engine tells of moving data: only where it is asked, and no result changes."""

from __future__ import annotations

import ast

import pytest

from harness.contracts.model import initial_weights
from harness.engine.backends.compiled.backend import Backend
from harness.engine.backends.compiled.source import write_loop
from harness.engine.cpu_kernels import cycles
from harness.engine.lowering.lower import lower
from harness.engine.lowering.plan import STAGES
from harness.engine.switches import Switches
from harness.oracle import run_reference
from tests.support.engine_models import EXAMPLES
from tests.support.engine_runs import disagreements, interpreted_kernels, prepared, run

NAME = "tree_lstm"
MOVES = ("gather_rows(", "look_up(", "scatter_add(", "copy_block(")
pytestmark = pytest.mark.skipif(not cycles.READABLE, reason="the counter needs an x86 processor")


@pytest.mark.slow  # compiles
def test_a_share_is_told_of_the_runs_since_it_was_last_asked() -> None:
    model, instances = EXAMPLES["tree_fc_fold"]
    weights = initial_weights(model, seed=0)
    adapter = prepared(model, weights, Switches(profile=True), mode="infer")
    assert adapter.moving_share() is None, "nothing has run"
    found = run(adapter, instances)
    assert not disagreements(found, run_reference(model, weights, instances, "infer"))
    share = adapter.moving_share()
    assert share is not None
    assert 0 < share < 1
    assert adapter.moving_share() is None


def test_nothing_is_told_where_it_was_not_asked_for() -> None:
    model, instances = EXAMPLES["tree_fc_fold"]
    with interpreted_kernels():
        adapter = prepared(model, initial_weights(model, seed=0), Switches(), mode="infer")
        run(adapter, instances)
    assert adapter.moving_share() is None


def test_the_counter_goes_on() -> None:
    first, second = cycles.now(), cycles.now()
    assert 0 < first < second


def test_ticks_are_counted_around_what_moves_alone() -> None:
    """Every step that moves data is between two readings; without the switch nothing is read."""
    model, _ = EXAMPLES[NAME]
    function = prepared(model, initial_weights(model, 0), Switches()).model.functions
    plans = {
        t: lower(one, Switches(), Backend.abilities, train=True) for t, one in function.items()
    }
    moved: set[str] = set()
    for stage in STAGES:
        plain = write_loop(plans, stage).text
        assert "cycles" not in plain
        telling = write_loop(plans, stage, profile=True).text
        ast.parse(telling)
        inside = False
        for line in telling.splitlines():
            if line.endswith("moving = cycles()"):
                assert not inside
                inside = True
            elif line.strip().startswith("tally[2] +="):
                assert inside
                inside = False
            elif inside:
                assert "multiply(" not in line
                assert "add_outer(" not in line
                moved.add(line.strip().removeprefix("tally[1] += ").partition("(")[0])
            else:
                assert not any(word in line for word in MOVES), line
    assert {"gather_rows", "look_up"} <= moved
