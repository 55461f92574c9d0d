"""Learning of a state machine by tabular Q-learning.

Source: Chen et al., "ED-Batch", ICML 2023, Sec. 2.3, with the constants of its release,
dynet/ooc-scheduler.h and .cc (RLScheduler).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dynbatch.harness.contracts.policy import FALLBACKS, LearningSettings
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.policies.fsm.machine import (
    StateMachine,
    TypedArrays,
    collect_types,
    map_types,
)
from dynbatch.harness.policies.fsm.states import ENCODINGS
from dynbatch.harness.policies.fsm.trials import (
    Nearest,
    QTable,
    Visits,
    find_nearest,
    make_table,
    run,
    run_trial,
    select_choices,
    update,
)
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.policies.parts.ready import Ready, start
from dynbatch.harness.values.arrays import Ints
from dynbatch.harness.values.graph import Graph

FIRST_EPSILON, LAST_EPSILON, EPSILON_DECAY = 0.5, 0.05, 0.9
EVALUATION_EVERY = 50  # trials
NEAR_BOUND = 1.01


@dataclass(frozen=True, slots=True)
class _Best:
    """Best evaluation so far: its number of batches, and its choice in every state then known."""

    n_batches: int
    choices: Ints


@dataclass(frozen=True, slots=True)
class _Episode:
    """Training graph with the arrays that every trial on it starts from."""

    graph: Graph
    typed: TypedArrays
    begin: Ready
    near: Nearest
    visits: Visits


def learn_machine(
    encoding: str, graphs: Sequence[Graph], settings: LearningSettings, workload: str
) -> StateMachine:
    """Learn on graphs of one model, in turn; equal seeds give equal machines.

    Raises:
        ConfigError: without any graph, or if the graphs are of different models.
    """
    if not graphs:
        raise ConfigError("learning needs at least one graph")
    names, follows = collect_types(graphs)
    episodes = [_prepare_episode(graph, names, follows) for graph in graphs]
    bound = sum(compute_lower_bound(graph) for graph in graphs)
    table, best, n_trials = _learn(episodes, ENCODINGS.index(encoding), settings, bound)
    return StateMachine(
        encoding=encoding,
        workload=workload,
        type_names=names,
        follows=follows,
        states=_extract_states(table, len(best.choices)),
        choices=tuple(best.choices.tolist()),
        variant=settings.variant,
        fallback=settings.fallback,
        seed=settings.seed,
        n_trials=n_trials,
        n_batches=best.n_batches,
        lower_bound=bound,
    )


def _learn(
    episodes: Sequence[_Episode], encoding: int, settings: LearningSettings, bound: int
) -> tuple[QTable, _Best, int]:
    """Return all states, the best choices in those known by then, and the number of trials."""
    fallback = FALLBACKS.index(settings.fallback)
    generator = np.array([settings.seed], dtype=np.uint64)
    table, epsilon, best = make_table(), FIRST_EPSILON, None
    for n_trials in range(1, settings.trials + 1):
        episode = episodes[(n_trials - 1) % len(episodes)]
        table, n_visits = run_trial(
            episode.begin, episode.near, table, episode.visits, encoding, epsilon, generator
        )
        update(table, episode.visits, n_visits, encoding, settings.variant == "released")
        epsilon = max(LAST_EPSILON, EPSILON_DECAY * epsilon)
        if n_trials % EVALUATION_EVERY == 0 or n_trials == settings.trials:
            choices = select_choices(table, encoding)
            n_batches = sum(
                _count_batches(episode, table, choices, encoding, fallback) for episode in episodes
            )
            if best is None or n_batches < best.n_batches:
                best = _Best(n_batches, choices)
            if best.n_batches < NEAR_BOUND * bound:
                break
    assert best is not None
    return table, best, n_trials


def _prepare_episode(graph: Graph, names: tuple[str, ...], follows: tuple[int, ...]) -> _Episode:
    typed = map_types(graph, names, follows)
    types, all_follows, _ = typed
    n = graph.n_vertices
    return _Episode(
        graph,
        typed,
        start(types, graph.arg_start, graph.args, all_follows),
        find_nearest(types, graph.arg_start, graph.args, len(names)),
        Visits(np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n)),
    )


def _count_batches(
    episode: _Episode, table: QTable, choices: Ints, encoding: int, fallback: int
) -> int:
    (types, follows, cheap), graph = episode.typed, episode.graph
    arrays = types, graph.arg_start, graph.args, follows, cheap
    _, starts, _ = run(*arrays, table.states, choices, encoding, fallback)
    return len(starts) - 1


def _extract_states(table: QTable, n: int) -> tuple[tuple[int, ...], ...]:
    keys, starts = table.states.keys.tolist(), table.states.starts.tolist()
    return tuple(tuple(keys[starts[s] : starts[s + 1]]) for s in range(n))
