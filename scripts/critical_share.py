"""Print the tables of docs/critical_share.md except counts: policy times, or an exact minimum.

    python -m scripts.critical_share times --data $BENCH_DATA --policies agenda,critical_share
    python -m scripts.critical_share minimum --data $BENCH_DATA

The exact minimum is that of TreeLSTM-2Type, with batches scheduled from the roots down. Classifiers
and losses are then the first batches and leaves the last, so only a choice between internal_a and
internal_b remains at each step. States of one tree are numbered; a state of the mini-batch is a
tuple of these numbers. The search tries every state that can still beat the beam policy. It ends
within seconds, because few states can.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from dynbatch.harness.contracts.corpus import Corpus, load_corpus
from dynbatch.harness.contracts.model import Model, ModelSizes
from dynbatch.harness.contracts.policy import (
    LearningSettings,
    Policy,
    is_learned,
    learn_policy,
    load_policy,
)
from dynbatch.harness.granularity.operators import build_operator_graph
from dynbatch.harness.granularity.released import build_released_graph
from dynbatch.harness.granularity.vertices import VertexModel
from dynbatch.harness.models.lattice_lstm import LatticeLSTM
from dynbatch.harness.models.tree_lstm import TreeLSTM
from dynbatch.harness.models.tree_lstm_2type import TYPE_NAMES, TreeLSTM2Type
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.values.graph import Graph

N_TURNS = 300
TYPES = (TYPE_NAMES.index("internal_a"), TYPE_NAMES.index("internal_b"))
PER_CHOICE = 3  # batches: a block and its two states
OTHERS = 7  # the leaves' block and two states, parameter, matmul, loss, sum
BESIDE = ("critical_share", "beam_20")
SIZES, N_SEEDS = (8, 32, 64, 128), 5


def main() -> None:
    """Print one of the two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("times", "minimum"))
    parser.add_argument("--data", type=Path, required=True, help="directory of the real corpora")
    parser.add_argument("--policies", default="agenda,critical_share", help="of times")
    flags = parser.parse_args()
    if flags.what == "times":
        print_times(flags.data, flags.policies.split(","))
    else:
        print_minimum(flags.data)


def print_times(data: Path, policies: list[str]) -> None:
    """Print the time to schedule 64 instances, and its ratio to that of the first policy.

    Policies run in turn, and ratios are taken within a turn. Numbers are medians and quartiles.
    """
    print("\n| graph of 64 | vertices | policy | ms | over the first | batches |")
    print("|---|---|---|---|---|---|")
    for name, graph in build_graphs(data):
        run = {policy: prepare_policy(policy, graph) for policy in policies}
        n_batches = {policy: schedule(graph).n_batches for policy, schedule in run.items()}
        turns = [[time_call(schedule, graph) for schedule in run.values()] for _ in range(N_TURNS)]
        for k, policy in enumerate(policies):
            taken = format_quartiles([turn[k] * 1e3 for turn in turns], 3)
            ratio = format_quartiles([turn[k] / turn[0] for turn in turns], 2)
            print(
                f"| {name} | {graph.n_vertices} | {policy} | {taken} | {ratio} |"
                f" {n_batches[policy]} |"
            )


def build_graphs(data: Path) -> Iterator[tuple[str, Graph]]:
    """Yield the name and the graph of 64 training instances, at all granularities."""
    lattices, trees = (
        load_lattices(data),
        load_corpus("dynbatch.datasets.sst", "train", data, sha256=None),
    )
    for cls, corpus in ((LatticeLSTM, lattices), (TreeLSTM, trees)):
        model, instances = build(cls, corpus), corpus.instances[:64]
        for outputs in ("stage", "vertices"):
            graph = VertexModel(model, outputs=outputs).mini_batch(instances).graph
            yield f"{cls.__name__}, outputs={outputs}", graph
        mini_batch = model.mini_batch(instances)
        yield f"{cls.__name__}, released", build_released_graph(model, mini_batch)
        yield f"{cls.__name__}, operators", build_operator_graph(model, mini_batch)


def prepare_policy(policy: str, graph: Graph) -> Policy:
    """Return a policy after one run; a learned policy is trained on the graph."""
    learned = is_learned(policy)
    run = learn_policy(policy, [graph], LearningSettings()) if learned else load_policy(policy)
    run(graph)
    return run


def time_call(run: Policy, graph: Graph) -> float:
    """Return the time of one schedule in seconds."""
    started = time.perf_counter()
    run(graph)
    return time.perf_counter() - started


def format_quartiles(values: list[float], digits: int) -> str:
    low, median, high = statistics.quantiles(values, n=4)
    return f"{median:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def load_lattices(data: Path) -> Corpus:
    return load_corpus(
        "dynbatch.datasets.weibo_lattice", "train", data, vocab_modulo=0, sha256=None
    )


def build(cls: type[Model], corpus: Corpus) -> Model:
    """Return a small model for a corpus; batch counts do not depend on the hidden size."""
    return cls(ModelSizes(hidden_size=4, data=corpus.sizes))


def print_minimum(data: Path) -> None:
    """Print a row for each batch size and seed, and the averages."""
    trees = load_corpus("dynbatch.datasets.sst", "train", data, sha256=None)
    print(f"| B | seed | bound | minimum | {' | '.join(BESIDE)} |")
    print("|---|---|---|---|---|---|")
    ratios: list[list[float]] = []
    for size in SIZES:
        for seed in range(N_SEEDS):
            model = TreeLSTM2Type(ModelSizes(hidden_size=4, data=trees.sizes), type_seed=seed)
            graph = build_released_graph(model, model.mini_batch(trees.instances[:size]))
            counts = [load_policy(name)(graph).n_batches for name in BESIDE]
            states = [TreeStates(model.mini_batch([tree]).graph) for tree in trees.instances[:size]]
            known = (min(counts) - OTHERS) // PER_CHOICE
            minimum = find_fewest_choices(states, known) * PER_CHOICE + OTHERS
            row = [minimum, *counts]
            ratios.append([n / compute_lower_bound(graph) for n in row])
            print(
                f"| {size} | {seed} | {compute_lower_bound(graph)} | {' | '.join(map(str, row))} |"
            )
    means = [f"{statistics.mean(column):.3f}" for column in zip(*ratios, strict=True)]
    print(f"| average over the bound | | 1 | {' | '.join(means)} |")


class TreeStates:
    """Numbered states of one tree; a state is the set of ready internal vertices, from the root."""

    def __init__(self, graph: Graph) -> None:
        self.types = graph.types.tolist()
        self.children = [
            [a for a in graph.select_args(v).tolist() if self.types[a] in TYPES]
            for v in range(graph.n_vertices)
        ]
        self.chains: list[list[int]] = []  # longest chain of each type from a vertex down
        for v, children in enumerate(self.children):
            own = [int(self.types[v] == t) for t in TYPES]
            below = [max((self.chains[c][k] for c in children), default=0) for k in range(2)]
            self.chains.append([own[k] + below[k] for k in range(2)])
        self.ready: list[frozenset[int]] = []
        self.longest: list[list[int]] = []
        self.numbers: dict[frozenset[int], int] = {}
        self.after: dict[tuple[int, int], int] = {}
        root = graph.n_vertices - 1
        self.number(frozenset([root] if self.types[root] in TYPES else []))

    def number(self, ready: frozenset[int]) -> int:
        """Return the number of a state, after adding it if it is new."""
        if ready not in self.numbers:
            self.numbers[ready] = len(self.ready)
            self.ready.append(ready)
            chains = [self.chains[v] for v in ready]
            self.longest.append([max((c[k] for c in chains), default=0) for k in range(2)])
        return self.numbers[ready]

    def advance(self, state: int, k: int) -> int:
        """Return the number of the state after a batch of the k-th type."""
        if (state, k) not in self.after:
            ready = self.ready[state]
            placed = [v for v in ready if self.types[v] == TYPES[k]]
            freed = [child for v in placed for child in self.children[v]]
            self.after[state, k] = self.number(ready.difference(placed).union(freed))
        return self.after[state, k]


def find_fewest_choices(trees: list[TreeStates], known: int) -> int:
    """Return the minimum number of choices.

    Args:
        known: number of choices of a known schedule, which is the upper limit.
    """

    def find_longest(states: tuple[int, ...]) -> list[int]:
        each = [tree.longest[state] for tree, state in zip(trees, states, strict=True)]
        return [max(tree[k] for tree in each) for k in range(2)]

    start = (0,) * len(trees)
    bound = sum(find_longest(start))
    layer = {start: 0}  # choices in excess of the bound, by state
    while layer:
        following: dict[tuple[int, ...], int] = {}
        for states, lost in layer.items():
            before = find_longest(states)
            if before == [0, 0]:
                return bound + lost
            for k in (0, 1):
                after = tuple(
                    tree.advance(state, k) for tree, state in zip(trees, states, strict=True)
                )
                cost = lost + int(find_longest(after)[k] == before[k])
                if after != states and bound + cost < min(known, following.get(after, known)):
                    following[after] = cost
        layer = following
    return known


if __name__ == "__main__":
    main()
