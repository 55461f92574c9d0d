"""Every pair of settings of two switches runs in some mini-batch, by one thread and by two."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from harness.engine.switches import Switches
from harness.oracle import run_reference
from tests.support.engine_models import example
from tests.support.engine_runs import disagreements, prepared, run
from tests.support.switch_values import SWITCHES

SETTINGS: dict[str, tuple[Any, ...]] = {
    **SWITCHES,
    "threads": (1, 2),
    "mode": ("train", "infer"),
}
Setting = tuple[str, Any]


def pairs_of(chosen: dict[str, Any]) -> set[frozenset[Setting]]:
    """All pairs of settings in one choice."""
    return {frozenset(pair) for pair in itertools.combinations(chosen.items(), 2)}


def covering() -> list[dict[str, Any]]:
    """Choices that hold every pair: greedily, each the best of those that differ from a start."""
    every = {
        frozenset(((a, x), (b, y)))
        for a, b in itertools.combinations(SETTINGS, 2)
        for x, y in itertools.product(SETTINGS[a], SETTINGS[b])
    }
    found = []
    while every:
        start = min(sorted(pair, key=str) for pair in map(list, every))
        chosen = dict(start)
        for name, values in SETTINGS.items():
            if name not in chosen:
                gains = [len(pairs_of({**chosen, name: value}) & every) for value in values]
                chosen[name] = values[gains.index(max(gains))]
        every -= pairs_of(chosen)
        found.append(chosen)
    return found


CHOICES = covering()


def test_every_pair_is_there() -> None:
    held = set().union(*map(pairs_of, CHOICES))
    for a, b in itertools.combinations(SETTINGS, 2):
        for x, y in itertools.product(SETTINGS[a], SETTINGS[b]):
            assert frozenset(((a, x), (b, y))) in held
    assert len(CHOICES) < 40, "pairs, and not everything with everything"


@pytest.mark.parametrize("name", ["tree_lstm", "lattice_lstm", "gates_apart"])
def test_every_pair_computes_what_the_oracle_does(name: str) -> None:
    model, instances, weights = example(name)
    oracle = run_reference(model, weights, instances, "train")
    for choice in CHOICES:
        asked = dict(choice)
        threads, mode = asked.pop("threads"), asked.pop("mode")
        adapter = prepared(model, weights, Switches(**asked), mode=mode, threads=threads)
        found = run(adapter, instances)
        wrong = disagreements(found, oracle)
        if mode == "infer":
            wrong = [what for what in wrong if what in ("loss", "outputs")]
        assert wrong == [], choice
