"""Batch counts of one policy on one mini-batch, beside the bounds, and the time of a decision."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from harness.clock import PhaseClock, collector_paused
from harness.errors import ScheduleError
from harness.generalisation import Generalisation, generalise
from harness.graph import UNBATCHABLE, Graph
from harness.policies import Policy, compile_policy, is_learned, learn_policy, load_policy
from harness.policies.bound import lower_bound
from harness.policies.learning import LearnedPolicy, LearningSettings
from harness.schedule import Schedule, check_schedule

MIN_CALLS, MAX_CALLS, ENOUGH_S = 5, 1000, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """A mini-batch as the graph that was asked for, and as the one of ED-Batch's release."""

    plain: Graph
    released: Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """One policy for each of both graphs; learned and learn_s are None where nothing is learned."""

    name: str
    plain: Policy
    released: Policy
    learned: LearnedPolicy | None = None
    learned_ed: LearnedPolicy | None = None
    learn_s: float | None = None
    learn_s_ed: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """One policy's counts; those ending in _ed are of the graph that ED-Batch's release counts.

    n_unbatchable_ed: its vertices that are a batch each under every policy (parameters).
    schedule_s: median over repeated calls on the graph itself, warm-up apart.
    learn_s: seconds of learning, n_trials: schedules tried, unseen_share: share of decisions in
        states that learning never met; None where a policy is not learned (learn_s: not here).
    following: counts on the mini-batches that follow; None where these were not asked for.
    """

    policy: str
    n_vertices: int
    n_batches: int
    lower_bound: int
    n_nodes_ed: int
    n_batches_ed: int
    lower_bound_ed: int
    n_unbatchable_ed: int
    schedule_s: float
    learn_s: float | None = None
    n_trials: int | None = None
    unseen_share: float | None = None
    learn_s_ed: float | None = None
    n_trials_ed: int | None = None
    unseen_share_ed: float | None = None
    following: Generalisation | None = None
    following_ed: Generalisation | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without those that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def scheduler(name: str, settings: LearningSettings, workload: str, train: Graphs) -> Scheduler:
    """Load a policy, or learn one for each of both graphs; `settings.file` is of the plain one.

    Raises ConfigError for a name that is no policy, and for a file that does not fit.
    """
    if not is_learned(name):
        policy = load_policy(name)
        return Scheduler(name=name, plain=policy, released=policy)
    compile_policy(name)
    clock = PhaseClock(synchronize=lambda: None)
    plain, learn_s = _learn(clock, name, train.plain, settings, workload)
    anew = replace(settings, file=None, file_sha256=None)
    released, learn_s_ed = _learn(clock, name, train.released, anew, f"{workload}, released graph")
    return Scheduler(
        name=name,
        plain=plain,
        released=released,
        learned=plain,
        learned_ed=released,
        learn_s=learn_s if settings.file is None else None,
        learn_s_ed=learn_s_ed,
    )


def _learn(
    clock: PhaseClock, name: str, graph: Graph, settings: LearningSettings, workload: str
) -> tuple[LearnedPolicy, float]:
    clock.start()
    learned = learn_policy(name, [graph], settings, workload)
    return learned, clock.stop().total_s


def count_batches(
    scheduler: Scheduler,
    graphs: Graphs,
    following: Sequence[Graphs] = (),
    enough_s: float = ENOUGH_S,
) -> BatchCounts:
    """Schedule both graphs, prove both schedules, and time the policy on the first.

    following: further mini-batches, which are only counted. enough_s: of timed calls.

    Raises ScheduleError if the policy breaks a rule.
    """
    schedule, learning = _schedule(scheduler.plain, scheduler.learned, graphs.plain)
    schedule_ed, learning_ed = _schedule(scheduler.released, scheduler.learned_ed, graphs.released)
    try:
        check_schedule(graphs.plain, schedule)
        check_schedule(graphs.released, schedule_ed)
    except ScheduleError as error:
        message = f"policy {scheduler.name} made a schedule that is not valid: {error}"
        raise ScheduleError(message) from error
    plain = [one.plain for one in following]
    released = [one.released for one in following]
    return BatchCounts(
        policy=scheduler.name,
        n_vertices=graphs.plain.n_vertices,
        n_batches=schedule.n_batches,
        lower_bound=lower_bound(graphs.plain),
        n_nodes_ed=graphs.released.n_vertices,
        n_batches_ed=schedule_ed.n_batches,
        lower_bound_ed=lower_bound(graphs.released),
        n_unbatchable_ed=int((graphs.released.types == UNBATCHABLE).sum()),
        schedule_s=median_call_s(scheduler.plain, graphs.plain, enough_s),
        learn_s=scheduler.learn_s,
        learn_s_ed=scheduler.learn_s_ed,
        **learning,
        **{f"{name}_ed": value for name, value in learning_ed.items()},
        following=generalise(scheduler.plain, scheduler.learned, plain),
        following_ed=generalise(scheduler.released, scheduler.learned_ed, released),
    )


def _schedule(
    policy: Policy, learned: LearnedPolicy | None, graph: Graph
) -> tuple[Schedule, dict[str, Any]]:
    """Return the schedule, and what a learned policy tells of it and itself."""
    if learned is None:
        return policy(graph), {}
    run = learned.run(graph)
    return run.schedule, {"n_trials": learned.n_trials, "unseen_share": run.unseen_share}


def median_call_s(policy: Policy, graph: Graph, enough_s: float = ENOUGH_S) -> float:
    """Return the median seconds of a call; the first call, which may compile, is no sample."""
    policy(graph)
    clock = PhaseClock(synchronize=lambda: None)
    samples: list[float] = []
    with collector_paused():
        while len(samples) < MIN_CALLS or (sum(samples) < enough_s and len(samples) < MAX_CALLS):
            clock.start()
            policy(graph)
            samples.append(clock.stop().total_s)
    return statistics.median(samples)
