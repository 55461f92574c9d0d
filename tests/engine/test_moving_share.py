"""What the engine tells of moving data: only where it is asked, and no result changes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from harness.contracts.model import initial_weights
from harness.engine.cpu_kernels.context import TICKS_READABLE, read_ticks
from harness.engine.switches import Switches
from harness.oracle import run_reference
from tests.support.engine_models import EXAMPLES
from tests.support.engine_runs import ONE_BY_ONE, disagreements, prepared, run
from tests.support.stage_instructions import instructions_of

# Kernels by their names, of which a model's plans hold some.
MOVES = {"gather", "look_up", "scatter_add", "copy", "pack", "spread", "fill"}
pytestmark = pytest.mark.skipif(not TICKS_READABLE, reason="the counter needs an x86 processor")


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
    adapter = prepared(model, initial_weights(model, seed=0), Switches(), mode="infer")
    run(adapter, instances)
    assert adapter.moving_share() is None


def test_the_share_is_of_forward_and_backward_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python between stages takes its part: the share is multiplied by times that include it."""
    model, instances = EXAMPLES["tree_fc_fold"]
    clock = {"ticks": 0, "inside": 0}
    adapter = prepared(model, initial_weights(model, seed=0), Switches())
    backend = adapter.engine.backend

    def counted(name: str) -> None:
        """Whatever the engine asks of its backend takes ten ticks."""
        real = getattr(backend, name)

        def called(*arguments: Any) -> Any:
            clock["ticks"] += 10
            clock["inside"] += 10
            return real(*arguments)

        monkeypatch.setattr(backend, name, called)

    for name in ("run_together", "later", "clear_gradients"):
        counted(name)
    monkeypatch.setattr(backend, "ticks", lambda: clock["ticks"])
    adapter.load(instances)
    adapter.run(Ignored(clock))
    assert clock["inside"] >= 40
    assert backend.tally.n_cycles == clock["inside"]
    backend.tally.n_moving_cycles = clock["inside"] // 2
    assert adapter.moving_share() == 0.5


class Ignored:
    """A clock between whose marks time passes that belongs to no phase."""

    def __init__(self, clock: dict[str, int]) -> None:
        self._clock = clock

    def mark(self, phase: str) -> None:
        """A mark takes its time, too."""
        self._clock["ticks"] += 1000

    def divide(self, shares: Mapping[str, float]) -> None:
        """Nothing is booked."""


def test_the_counter_goes_on() -> None:
    first, second = read_ticks(), read_ticks()
    assert 0 < first < second


def test_ticks_are_counted_around_what_moves_alone() -> None:
    """Every step that only moves data, and no other one."""
    moved = set[str]()
    for (model, _), chosen in product(EXAMPLES.values(), ("all", "none", "packs")):
        for _, one in instructions_of(model, Switches(**ONE_BY_ONE[chosen])):
            assert one.moves == (one.name in MOVES), one.name
            moved |= {one.name} & MOVES
    assert moved == MOVES
