"""Every policy is valid on any graph, and follows its paper on graphs made for it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings

import dynbatch.harness.policies
from dynbatch.harness.contracts import policy
from dynbatch.harness.contracts.policy import list_policy_names, load_policy
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE, Graph
from dynbatch.harness.values.schedule import Schedule, check_schedule
from tests.support.policies import (
    OUTPUT,
    batches,
    chain_with_outputs,
    schedule_by,
    types_in_order,
)
from tests.support.processes import run_python
from tests.support.random_graphs import graph_of, graphs, minimum_batches

BATCHING = [name for name in list_policy_names() if name != "unbatched"]


def test_names_are_found_without_compiling() -> None:
    code = (
        "import sys; from dynbatch.harness.contracts.policy import list_policy_names;"
        " print(*list_policy_names()); sys.exit('llvmlite' in sys.modules)"
    )
    names = run_python("-c", code).split()
    assert {"unbatched", "depth", "frontier", "agenda", "sufficient"} <= set(names)
    assert "bound" not in names


@pytest.mark.parametrize("name", ["parts", "fsm", "__init__", "no_such_policy", "", "agenda "])
def test_an_unknown_policy_is_refused_and_the_known_are_listed(name: str) -> None:
    with pytest.raises(ConfigError, match=r"is unknown.*; choose one of agenda, .*unbatched"):
        load_policy(name)


@pytest.fixture
def policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide another directory of policies, with a valid one."""
    (tmp_path / "whole.py").write_text("def schedule(graph): ...\n")
    monkeypatch.setattr(policy, "_FOLDER", tmp_path)
    monkeypatch.setattr(dynbatch.harness.policies, "__path__", [str(tmp_path)])
    policy._list_entries.cache_clear()
    yield tmp_path
    policy._list_entries.cache_clear()
    for name in ("whole", "broken", "several", "typed", "folder"):
        sys.modules.pop(f"dynbatch.harness.policies.{name}", None)


def test_a_file_with_an_error_is_reported_and_blocks_no_other(policies: Path) -> None:
    (policies / "broken.py").write_text("def schedule(graph): return (\n")
    (policies / "typed.py").write_text("def schedule(graph): ...\nN = 1 // 0\n")
    load_policy("whole")
    with pytest.raises(ConfigError, match=r"imported \(SyntaxError: .*broken\.py, line 1"):
        load_policy("broken")
    with pytest.raises(ConfigError, match=r"typed cannot be imported \(ZeroDivisionError: .*fix"):
        load_policy("typed")
    (policies / "other.py").write_text("def schedul(graph): ...\n")
    with pytest.raises(ConfigError, match=r"other\.py defines neither schedule nor learn"):
        load_policy("other")


@pytest.mark.parametrize("table", ["{1: 'by_one'}", "{'one': 1}", "['one']", "{[]: 1}", "by_one"])
def test_a_table_of_policies_that_cannot_be_read_blocks_no_other(
    policies: Path, table: str
) -> None:
    (policies / "several.py").write_text(f"POLICIES = {table}\n")
    (policies / "folder.py").mkdir()
    (policies / "dangling.py").symlink_to(policies / "nothing.py")
    assert list_policy_names() == ("dangling", "folder", "several", "whole")
    load_policy("whole")
    for name in ("dangling", "folder", "several"):
        with pytest.raises(ConfigError, match=f"policy={name} cannot be imported"):
            load_policy(name)


def test_a_file_may_hold_several_policies(policies: Path) -> None:
    (policies / "several.py").write_text(
        "POLICIES = {'one': 'by_one', 'two': 'by_two', 'gone': 'by_gone'}\n"
        "LEARNED_POLICIES = {'machine': 'MACHINE'}\n"
        "def by_one(graph): return 1\n"
        "def by_two(graph): return 2\n"
        "class MACHINE:\n"
        "    def learn(graphs, settings, workload): return len(graphs), workload\n"
    )
    assert list_policy_names() == ("gone", "machine", "one", "two", "whole")
    assert load_policy("two")(graph_of([], [])) == 2  # type: ignore[comparison-overlap]
    assert not policy.is_learned("one")
    assert policy.is_learned("machine")
    learned = policy.learn_policy("machine", [], policy.LearningSettings(), "a model")
    assert learned == (0, "a model")  # type: ignore[comparison-overlap]
    with pytest.raises(ConfigError, match=r"policy=gone cannot be imported .*by_gone"):
        load_policy("gone")
    with pytest.raises(ConfigError, match=r"several.py defines neither"):
        load_policy("several")


def test_assignments_may_have_types(policies: Path) -> None:
    (policies / "typed.py").write_text("schedule: object = len\n")
    (policies / "broken.py").write_text(
        "POLICIES: dict[str, str] = {'one': 'by_one'}\nby_one = len\n"
    )
    assert list_policy_names() == ("one", "typed", "whole")
    assert load_policy("typed") is load_policy("one") is len  # type: ignore[comparison-overlap]


# Drawing a graph takes as long as scheduling it, so every policy gets the same graphs.
@settings(deadline=None, max_examples=240)
@given(graph=graphs())
def test_every_schedule_is_valid_and_not_below_the_bound(graph: Graph) -> None:
    """Batches of followers come directly after that of their block."""
    bound = compute_lower_bound(graph)
    for name in list_policy_names():
        schedule = schedule_by(name, graph)
        check_schedule(graph, schedule)
        for array in (schedule.order, schedule.starts):  # which nothing else has accessed
            found = (array.dtype, array.flags.c_contiguous, array.flags.writeable)
            assert found == (np.int32, True, False), name
        assert schedule.n_batches >= bound, name
        assert all(batch == sorted(batch) for batch in batches(schedule)), name
        if name == "unbatched":
            continue
        order = types_in_order(graph, schedule)
        block: list[int] = []
        for index, (t, batch) in enumerate(zip(order, batches(schedule), strict=True)):
            led = graph.follows[t]
            if led == NO_TYPE:
                block = batch
                continue
            before = next(s for s in reversed(order[:index]) if graph.follows[s] == NO_TYPE)
            assert before == led, name
            assert {int(graph.select_args(v)[0]) for v in batch} <= set(block), name


@settings(deadline=None, max_examples=60)
@given(graph=graphs(max_vertices=14))
def test_neither_the_bound_nor_a_policy_contradicts_the_exact_minimum(graph: Graph) -> None:
    """A schedule found by a beam is never worse than that of critical share."""
    counts = {name: schedule_by(name, graph).n_batches for name in BATCHING}
    assert compute_lower_bound(graph) <= minimum_batches(graph) <= min(counts.values()), counts
    assert max(counts["beam_2"], counts["beam_20"]) <= counts["critical_share"]


@settings(deadline=None, max_examples=150)
@given(graph=graphs(max_types=4))
def test_depth_and_frontier_agree_without_followers(graph: Graph) -> None:
    assume(graph.follows.max() == NO_TYPE)
    assert batches(load_policy("depth")(graph)) == batches(load_policy("frontier")(graph))


@pytest.mark.parametrize("name", list_policy_names())
def test_an_empty_graph_has_an_empty_schedule(name: str) -> None:
    assert schedule_by(name, graph_of([], [], n_types=2)).n_batches == 0


def test_unbatched_is_the_order_of_creation() -> None:
    graph = chain_with_outputs()
    assert batches(load_policy("unbatched")(graph)) == [[v] for v in range(graph.n_vertices)]


@pytest.mark.parametrize("name", ["depth", "frontier"])
def test_depth_splits_the_outputs(name: str) -> None:
    graph = chain_with_outputs()
    order = types_in_order(graph, schedule_by(name, graph))
    assert order.count(OUTPUT) == 4
    assert len(order) == 9


def test_agenda_takes_unbatchable_vertices_first_and_in_order_of_becoming_ready() -> None:
    graph = graph_of([1, 0, 1, 0, 0], [[], [0], [], [], [2]])
    schedule = load_policy("agenda")(graph)
    assert batches(schedule) == [[3], [0, 2], [1], [4]]


def choices(graph: Graph, schedule: Schedule) -> Iterator[tuple[int, set[int], list[int]]]:
    """Replay a schedule: return the chosen type, the ready types and the remaining vertices.

    Unbatchable vertices must run whenever one is ready; they and followers are no choices.
    """
    args = [set(graph.select_args(v).tolist()) for v in range(graph.n_vertices)]
    executed: set[int] = set()
    for batch in batches(schedule):
        t = int(graph.types[batch[0]])
        remaining = [v for v in range(graph.n_vertices) if v not in executed]
        ready = {int(graph.types[v]) for v in remaining if args[v] <= executed}
        if graph.follows[t] == NO_TYPE:
            assert (t == UNBATCHABLE) == (UNBATCHABLE in ready)
            if t != UNBATCHABLE:
                yield t, ready, remaining
        executed |= set(batch)


def depths(graph: Graph) -> list[int]:
    depth: list[int] = []
    for v in range(graph.n_vertices):
        depth.append(1 + max((depth[a] for a in graph.select_args(v).tolist()), default=-1))
    return depth


def average(graph: Graph, t: int, vertices: Iterable[int]) -> Fraction:
    values = [
        depth for v, depth in enumerate(depths(graph)) if graph.types[v] == t and v in vertices
    ]
    return Fraction(sum(values), len(values))


def extracted_shares(graph: Graph, ready: set[int], remaining: list[int]) -> dict[int, Fraction]:
    """Return |F_t| / |F(G^t)| from the definitions."""
    ancestors = [set[int]() for _ in range(graph.n_vertices)]
    for v in range(graph.n_vertices):
        for a in graph.select_args(v).tolist():
            ancestors[v] |= ancestors[a] | {a}
    shares = {}
    for t in ready:
        members = {v for v in remaining if graph.types[v] == t}
        n_ready = sum(not ancestors[v] & set(remaining) for v in members)
        shares[t] = Fraction(n_ready, sum(not ancestors[v] & members for v in members))
    return shares


@settings(deadline=None, max_examples=100)
@given(graph=graphs(max_vertices=25))
def test_each_choice_is_the_one_of_its_paper(graph: Graph) -> None:
    """Agendas take the least static or remaining average depth; sufficient the largest share."""
    for t, ready, _ in choices(graph, load_policy("agenda")(graph)):
        averages = {r: average(graph, r, range(graph.n_vertices)) for r in ready}
        ties = sorted(r for r in ready if averages[r] == min(averages.values()))
        cheap = [r for r in ties if graph.cheap[r]]
        assert t == (cheap[-1] if cheap else ties[0])
    for t, ready, remaining in choices(graph, load_policy("agenda_dynamic")(graph)):
        averages = {r: average(graph, r, remaining) for r in ready}
        assert t == min(ready, key=lambda r: (averages[r], r))
    for t, ready, remaining in choices(graph, load_policy("sufficient")(graph)):
        shares = extracted_shares(graph, ready, remaining)
        assert t == min(ready, key=lambda r: (-shares[r], r))


@settings(deadline=None, max_examples=100)
@given(graph=graphs(max_vertices=25))
def test_the_reversed_heuristic_takes_the_largest_share_from_the_outputs_back(graph: Graph) -> None:
    assume(graph.follows.max() == NO_TYPE)
    last = graph.n_vertices - 1
    users: list[list[int]] = [[] for _ in range(graph.n_vertices)]
    for v in range(graph.n_vertices):
        for a in graph.select_args(v).tolist():
            users[last - a].append(last - v)
    turned = graph_of(graph.types[::-1].tolist(), users, graph.n_types)
    found = load_policy("sufficient_reversed")(graph)
    backwards = Schedule(last - found.order[::-1], graph.n_vertices - found.starts[::-1])
    active: dict[int, int] = {}  # the choice at which each type became ready
    for index, (t, ready, remaining) in enumerate(choices(turned, backwards)):
        active = {r: active.get(r, index) for r in ready}
        shares = extracted_shares(turned, ready, remaining)
        assert shares[t] == max(shares.values())
        assert active[t] == min(active[r] for r in ready if shares[r] == shares[t])
        del active[t]


def test_unbatchable_vertices_are_single_batches_in_depth() -> None:
    graph = graph_of([0, 0, 1, 1, 0], [[], [], [0], [1], [2]])
    assert batches(load_policy("depth")(graph)) == [[0], [1], [2, 3], [4]]
