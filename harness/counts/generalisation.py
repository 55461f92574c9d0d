"""How a policy does on mini-batches that come after the one it was learned on (or tuned for)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from harness.contracts.policy import LearnedPolicy, Policy
from harness.policies.parts.bound import lower_bound
from harness.policies.parts.rounds import run_in_rounds, schedule_in_rounds
from harness.records.count_row import Generalisation
from harness.values.graph import Graph


def generalise(
    policy: Policy, learned: LearnedPolicy | None, graphs: Sequence[Graph]
) -> Generalisation | None:
    """Schedule every graph; `learned` is the policy where that is learned. None for no graphs."""
    if not graphs:
        return None
    runs = [] if learned is None else [run_in_rounds(learned, graph) for graph in graphs]
    schedules = [run.schedule for run in runs] or [schedule_in_rounds(policy, g) for g in graphs]
    counts = tuple(schedule.n_batches for schedule in schedules)
    bounds = tuple(lower_bound(graph) for graph in graphs)
    n_decisions = sum(run.n_decisions for run in runs)
    return Generalisation(
        n_batches=counts,
        lower_bound=bounds,
        ratio=statistics.fmean(n / bound for n, bound in zip(counts, bounds, strict=True)),
        unseen_share=sum(run.n_unseen for run in runs) / n_decisions if n_decisions else None,
    )
