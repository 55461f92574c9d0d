"""Batches of graphs that no state machine over sets of ready types schedules well.

    table:
      kind: swapped_types
      lengths: [2, 4, 8] # of each chain
      policies: [agenda, fsm_sort, critical_share]
      n_seeds: 5 # of learned policies, of which the fewest batches count

A chain of I has an O at each vertex, and a chain of O has an I at each. The counts are exact on any
machine. Source of the counterexample: Chen et al., "ED-Batch", ICML 2023, Fig. 10.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd

from dynbatch.harness.contracts.policy import (
    LearningSettings,
    is_learned,
    learn_policy,
    load_policy,
)
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.values.graph import Graph
from dynbatch.harness.values.schedule import check_schedule
from dynbatch.plots.captions import build_only_table
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.tables.cells import Table, format_plain

INTERNAL, OUTPUT = 1, 2
SIDE_BY_SIDE, IN_SEQUENCE = "side by side", "one after the other"
BOUND = "lower bound"


def build(experiment: Experiment) -> list[Table]:
    """Build the table: a row per graph, a column per policy, and the lower bound."""
    lengths, policies, n_seeds = experiment.declaration.read_keys(
        "table", lengths=list[int], policies=list[str], n_seeds=int
    )
    rows = []
    for name, length in product((SIDE_BY_SIDE, IN_SEQUENCE), lengths):
        graph = build_graph(name, length)
        counts = {policy: count_batches(policy, graph, n_seeds) for policy in policies}
        rows.append({"graph": name, "length": length, **counts, BOUND: compute_lower_bound(graph)})
    results = pd.DataFrame(rows)
    cells = results.drop(columns=["graph", "length"]).map(format_plain)
    cells.columns = cells.columns.str.replace("_", " ")
    heads = results.graph + ", length " + results.length.astype(str)
    cells.index = pd.Index(heads, name="chains of I and of O")
    return build_only_table(experiment, results, cells)


def build_graph(name: str, length: int) -> Graph:
    """Build a chain of I with an O at each vertex, and a chain of O with an I at each.

    Args:
        name: SIDE_BY_SIDE, or IN_SEQUENCE if the second chain continues the first.
    """
    types: list[int] = []
    args: list[list[int]] = []
    for chain, hanging in ((INTERNAL, OUTPUT), (OUTPUT, INTERNAL)):
        for step in range(length):
            is_first = step == 0 and (name == SIDE_BY_SIDE or not types)
            above = [] if is_first else [len(types) - 2]
            args += [above, [len(types)]]
            types += [chain, hanging]
    return Graph(
        types=np.array(types, dtype=np.int32),
        arg_start=np.cumsum([0, *map(len, args)], dtype=np.int32),
        args=np.array([vertex for above in args for vertex in above], dtype=np.int32),
        type_names=("unbatchable", "I", "O"),
    )


def count_batches(policy: str, graph: Graph, n_seeds: int) -> int:
    """Count the batches of a policy; one that learns on the graph has the fewest of all seeds."""
    if is_learned(policy):
        seeds = [LearningSettings(seed=seed) for seed in range(n_seeds)]
        schedules = [learn_policy(policy, [graph], seed)(graph) for seed in seeds]
    else:
        schedules = [load_policy(policy)(graph)]
    for schedule in schedules:
        check_schedule(graph, schedule)
    return min(schedule.n_batches for schedule in schedules)
