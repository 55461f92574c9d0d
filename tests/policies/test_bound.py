"""Lower bound and exact minimum, against an independent brute-force search."""

from __future__ import annotations

from functools import cache
from itertools import chain, combinations

from hypothesis import given, settings

from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE, Graph
from tests.support.random_graphs import graph_of, graphs, minimum_batches


def brute_force(graph: Graph) -> int:
    """Try every subset of the ready vertices of every type, and run the types that must follow."""
    types = graph.types.tolist()
    args = [frozenset(graph.select_args(v).tolist()) for v in range(graph.n_vertices)]
    led = [graph.follows[t] != NO_TYPE for t in types]

    def run(executed: frozenset[int], batch: tuple[int, ...]) -> int:
        followers = {v for v in range(len(types)) if led[v] and args[v] <= set(batch)}
        after = executed | set(batch) | followers
        return 1 + len({types[v] for v in followers}) + fewest(after)

    @cache
    def fewest(executed: frozenset[int]) -> int:
        ready = [v for v in range(len(types)) if v not in executed and args[v] <= executed]
        if not ready:
            return 0
        batches: list[tuple[int, ...]] = []
        for t in {types[v] for v in ready}:
            members = [v for v in ready if types[v] == t]
            largest = 1 if t == UNBATCHABLE else len(members)
            sizes = range(1, largest + 1)
            batches += list(chain.from_iterable(combinations(members, k) for k in sizes))
        return min(run(executed, batch) for batch in batches)

    return fewest(frozenset())


def test_bound_counts_chains_and_unbatchable_vertices() -> None:
    # 1 -> 1 -> 2 -> 1 next to 2 -> 2, and two unbatchable vertices.
    graph = graph_of([1, 1, 2, 1, 2, 2, 0, 0], [[], [0], [1], [2], [], [4], [], [6]])
    assert compute_lower_bound(graph) == 3 + 2 + 2


def test_bound_of_an_empty_graph_is_zero() -> None:
    assert compute_lower_bound(graph_of([], [], n_types=3)) == 0
    assert minimum_batches(graph_of([], [], n_types=3)) == 0


def test_bound_need_not_be_reached() -> None:
    # One chain needs 1 before 2, the other 2 before 1: three batches, but the bound is two.
    graph = graph_of([1, 2, 2, 1], [[], [0], [], [2]])
    assert compute_lower_bound(graph) == 2
    assert minimum_batches(graph) == 3


@settings(deadline=None, max_examples=100)
@given(graphs(max_vertices=8, max_types=3))
def test_exact_search_agrees_with_brute_force(graph: Graph) -> None:
    assert minimum_batches(graph) == brute_force(graph)


def test_waiting_for_one_batch_of_followers_can_pay() -> None:
    # Two vertices of a chain, the second with a follower, and a third of their type with one: if it
    # runs with the first of the chain, the third needs a separate batch of followers.
    graph = graph_of([1, 1, 1, 2, 2], [[], [], [0], [1], [2]], follows=[NO_TYPE, NO_TYPE, 1])
    assert minimum_batches(graph) == brute_force(graph) == 3
