"""Comparison of the engine with the reference for models, switches, policies and granularities."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import combinations, cycle, islice, product
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dynbatch.harness.contracts.model import Model, Weights, draw_initial_weights
from dynbatch.harness.contracts.system import PHASES
from dynbatch.harness.engine.cpu_kernels import memory_kernels
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.reference import ReferenceResult, run_reference
from dynbatch.systems.on_core.vertex import Adapter
from tests.support.engine_models import EXAMPLES, example
from tests.support.engine_runs import (
    ONE_BY_ONE,
    POLICIES,
    SWITCHES,
    all_switches,
    disagreements,
    prepared,
    run,
)
from tests.support.fake_time import NullClock
from tests.support.pairwise import pairwise_choices
from tests.support.random_programs import RandomModel, Recipe, recipes, sketches
from tests.support.sketch_models import Sketch

PLAIN = Switches(backend="stepwise")


@cache
def _reference(name: str, mode: str = "train") -> ReferenceResult:
    """Return the reference result of an example, which callers must not change."""
    model, instances, weights = example(name)
    return run_reference(model, weights, instances, mode)


SETTINGS: dict[str, tuple[Any, ...]] = {
    **SWITCHES,
    "backend": ("compiled", "stepwise"),
    "policy": POLICIES,
    "threads": (1, 2),
    "mode": ("train", "infer"),
}
CHOICES = pairwise_choices(SETTINGS)
# Layouts of vertex functions need fusion=false.
BASE = {"fusion": False, "policy": "frontier", "threads": 1}
FLAGS = ("hoisting", "lazy_batching", "pre_gather_parameters", "fold_tables")
OF_LAYOUTS = {name: SETTINGS[name] for name in (*FLAGS, "backend", "mode")}
LAID_OUT = [BASE | chosen for chosen in pairwise_choices({"layout": ("pq", "dynet"), **OF_LAYOUTS})]


def test_every_pair_of_settings_is_there() -> None:
    for a, b in combinations(SETTINGS, 2):
        held = {(choice[a], choice[b]) for choice in CHOICES}
        assert held == set(product(SETTINGS[a], SETTINGS[b]))
    assert len(CHOICES) < 40, "pairs, and not everything with everything"


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_pair_of_settings_agrees_with_the_reference(name: str) -> None:
    """A model has a third of the choices; three models in a row have all of them.

    Every model has all pairs of settings that change the layout of its functions.
    """
    model, instances, weights = example(name)
    for choice in (*CHOICES[list(EXAMPLES).index(name) % 3 :: 3], *LAID_OUT):
        asked = dict(choice)
        if name == "passes_on":  # its loss reads states that are not pushed
            asked["outputs"] = "stage"
        threads, mode, policy = (asked.pop(key) for key in ("threads", "mode", "policy"))
        adapter = prepared(model, weights, Switches(**asked), policy, mode, threads=threads)
        assert disagreements(run(adapter, instances), _reference(name, mode)) == [], choice


COMBINED = ("tree_lstm", "child_sum", "parser")


@pytest.mark.parametrize("granularity", ["vertex", "operator"])
@pytest.mark.parametrize("name", COMBINED)
def test_every_combination_of_switches_agrees_with_the_reference(
    name: str, granularity: str
) -> None:
    """Each combination is run by one of the models."""
    model, instances, weights = example(name)
    chosen = zip(all_switches(granularity), cycle(POLICIES), strict=False)
    for switches, policy in islice(chosen, COMBINED.index(name), None, len(COMBINED)):
        result = run(prepared(model, weights, switches, policy), instances)
        assert disagreements(result, _reference(name)) == [], (switches, policy)


def test_programs_are_compiled_before_passes_run(monkeypatch: pytest.MonkeyPatch) -> None:
    model, instances, weights = example("tree_lstm")
    adapter = prepared(model, weights)
    load = Mock(wraps=adapter.load)
    monkeypatch.setattr(adapter, "load", load)
    assert adapter.n_compilations() == 0
    for _ in range(4):
        adapter.compile_for(instances)
    n_programs = adapter.n_compilations()
    assert n_programs
    assert load.call_count == 2, "the second met nothing new"
    for name, value in adapter.parameters().items():
        np.testing.assert_array_equal(value, weights[name], err_msg=name)
    run(adapter, instances, update=True)
    assert adapter.n_compilations() == n_programs
    load.reset_mock()
    adapter.compile_for(instances)
    load.assert_not_called()  # after a run of passes that compiled nothing
    stepwise = prepared(model, weights, PLAIN)
    stepwise.compile_for(instances)
    assert stepwise.n_compilations() is None, "it compiles nothing"


def test_disagreements_are_noticed() -> None:
    model, instances, weights = example("tree_lstm")
    changed = weights | {"F_1": weights["F_1"] * np.float32(1.01)}
    found = disagreements(run(prepared(model, changed, PLAIN), instances), _reference("tree_lstm"))
    assert {"outputs", "F_1", "F_2", "U"} <= set(found)


@pytest.mark.parametrize("name", EXAMPLES)
def test_buffers_are_reused_by_mini_batches_of_any_size(name: str) -> None:
    model, instances, weights = example(name)
    # Growing, shrinking, one instance, and types that are absent from some mini-batches or new.
    parts = (instances[1:2], instances, instances * 3, instances[:1], instances[::-1])
    references = [run_reference(model, weights, part, "train") for part in parts]
    for backend, granularity in product(("stepwise", "compiled"), ("vertex", "operator")):
        # Near |tanh| = 1, few roundings of tanh are a large relative error of 1 - tanh^2.
        tolerance = {"stepwise": 2e-5, "compiled": 2e-4}[backend]
        lazy = (backend == "compiled") == (granularity == "vertex")
        switches = Switches(backend=backend, granularity=granularity, lazy_batching=lazy)
        adapter = prepared(model, weights, switches)
        for part, reference in zip(parts, references, strict=True):
            wrong = disagreements(run(adapter, part), reference, tolerance)
            assert wrong == [], (backend, granularity, len(part))


@pytest.mark.parametrize(("mode", "n_phases"), [("train", 5), ("infer", 3)])
def test_phases_are_marked_in_order(mode: str, n_phases: int) -> None:
    model, instances, weights = example("tree_lstm")
    adapter, clock, marked = prepared(model, weights, PLAIN, mode=mode), NullClock(), list[str]()
    clock.mark = marked.append  # type: ignore[method-assign]
    adapter.load(instances)
    adapter.run(clock)
    assert marked == list(PHASES[:n_phases])


N_DRAWN = int(os.environ.get("BENCH_TEST_EXAMPLES", "160"))
WIDTHS = (2, 1, 37, 300)
any_switches = st.one_of(
    st.sampled_from([*all_switches("vertex"), *all_switches("operator")]),
    st.builds(
        Switches,
        layout=st.sampled_from(["pq", "dynet"]),
        fusion=st.sampled_from([False, False, True]),
        **dict.fromkeys(FLAGS[:3], st.booleans()),
        backend=st.sampled_from(["stepwise", "compiled"]),
    ),
)


def reference_of(model: Model, instances: list[Sketch]) -> tuple[Weights, ReferenceResult]:
    """Return initial weights and the result of the reference, unless its values are huge."""
    weights = draw_initial_weights(model, 3)
    reference = run_reference(model, weights, instances, "train")
    values = [reference.outputs, *reference.gradients.values()]
    assume(max(float(np.abs(value).max()) for value in values) < 1e3)
    return weights, reference


@pytest.mark.slow
@settings(max_examples=N_DRAWN, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.builds(RandomModel, recipes, st.sampled_from(WIDTHS)),
    st.lists(sketches(), min_size=1, max_size=3),
    any_switches,
    st.sampled_from(["frontier", "agenda"]),
    st.integers(1, 3),
)
def test_any_program_matches_the_reference(
    model: RandomModel, instances: list[Sketch], switches: Switches, policy: str, threads: int
) -> None:
    weights, reference = reference_of(model, instances)
    result = run(prepared(model, weights, switches, policy, threads=threads), instances)
    assert disagreements(result, reference, 2e-4) == []
    alone = run(prepared(model, weights, switches, policy), instances)
    assert alone.counters == result.counters
    inferred = run(prepared(model, weights, switches, policy, mode="infer"), instances)
    assert abs(inferred.loss - reference.loss) <= 2e-4 * max(1.0, abs(reference.loss))


@contextmanager
def memory_of_nan() -> Iterator[None]:
    """Fill all new float arrays of the CPU backend with NaN inside this context."""
    empty = memory_kernels.allocate_aligned

    def poisoned(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        found = empty(shape, dtype)
        if found.dtype == np.float32:
            found.fill(np.nan)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_kernels, "allocate_aligned", poisoned)
        yield


def forget_all(adapter: Adapter) -> None:
    """Overwrite all results of the last mini-batch with NaN."""
    memory = adapter.engine.backend._memory
    for array in (*memory.buffers.values(), *memory.parameters.dense.values()):
        array.fill(np.nan)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS[1:])
@settings(max_examples=N_DRAWN // 6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    recipes=recipes,
    instances=st.lists(sketches(6), min_size=1, max_size=2),
    chosen=st.sampled_from([key for key in ONE_BY_ONE if key not in ("outputs", "none")]),
    threads=st.integers(1, 2),
    n_times=st.sampled_from([1, 9]),  # more rows than one thread takes
)
def test_nothing_is_read_that_was_not_written(
    width: int, recipes: Mapping[str, Recipe], instances: list[Sketch], chosen: str, threads: int,
    n_times: int,
) -> None:  # fmt: skip
    model = RandomModel(recipes, width)
    weights, reference = reference_of(model, instances)
    many = ReferenceResult(  # of n_times as many instances
        n_times * reference.loss,
        np.tile(reference.outputs, (n_times, 1)),
        {name: n_times * gradient for name, gradient in reference.gradients.items()},
    )
    with memory_of_nan():
        adapter = prepared(model, weights, Switches(**ONE_BY_ONE[chosen]), threads=threads)
        for part, expected in ((instances, reference), (instances * n_times, many)):
            assert disagreements(run(adapter, part), expected, 2e-4) == []
            forget_all(adapter)
