"""Print the exact minimum of batches for TreeLSTM-2Type, beside the lower bound and two policies.

Working from the roots down, classifiers and losses go first and leaves last, one batch each; what
remains is a choice between internal_a and internal_b at each step. States of one tree are numbered,
so that a state of the mini-batch is a tuple of numbers, and every state that can still do better
than the beam is tried. It ends within seconds, as few can.

    python scripts/minimum_of_two_types.py --data $BENCH_DATA
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from harness.contracts.corpus import load_corpus
from harness.contracts.model import ModelSizes
from harness.contracts.policy import load_policy
from harness.granularity.released import released_graph
from harness.models.tree_lstm_2type import TYPE_NAMES, TreeLSTM2Type
from harness.policies.parts.bound import lower_bound
from harness.values.graph import Graph

TYPES = (TYPE_NAMES.index("internal_a"), TYPE_NAMES.index("internal_b"))
PER_CHOICE = 3  # a block and its two states
OTHERS = 7  # the leaves' block and two states, parameter, product, loss, sum
POLICIES = ("critical_share", "beam_20")


class TreeStates:
    """States of one tree: its ready internal vertices, from the root down, by number."""

    def __init__(self, graph: Graph) -> None:
        self.types = graph.types.tolist()
        self.children = [
            [a for a in graph.args_of(v).tolist() if self.types[a] in TYPES]
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
        """Return the number of a state, a new one if need be."""
        if ready not in self.numbers:
            self.numbers[ready] = len(self.ready)
            self.ready.append(ready)
            chains = [self.chains[v] for v in ready]
            self.longest.append([max((c[k] for c in chains), default=0) for k in range(2)])
        return self.numbers[ready]

    def place(self, state: int, k: int) -> int:
        """Return the state after a batch of the k-th type."""
        if (state, k) not in self.after:
            ready = self.ready[state]
            placed = [v for v in ready if self.types[v] == TYPES[k]]
            freed = [child for v in placed for child in self.children[v]]
            self.after[state, k] = self.number(ready.difference(placed).union(freed))
        return self.after[state, k]


def fewest_choices(trees: list[TreeStates], known: int) -> int:
    """Return the minimum of choices, at most the known number."""

    def longest(states: tuple[int, ...]) -> list[int]:
        each = [tree.longest[state] for tree, state in zip(trees, states, strict=True)]
        return [max(tree[k] for tree in each) for k in range(2)]

    start = (0,) * len(trees)
    bound = sum(longest(start))
    layer = {start: 0}  # choices beyond the bound that each state has cost
    while layer:
        following: dict[tuple[int, ...], int] = {}
        for states, lost in layer.items():
            before = longest(states)
            if before == [0, 0]:
                return bound + lost
            for k in (0, 1):
                after = tuple(
                    tree.place(state, k) for tree, state in zip(trees, states, strict=True)
                )
                cost = lost + int(longest(after)[k] == before[k])
                if after != states and bound + cost < min(known, following.get(after, known)):
                    following[after] = cost
        layer = following
    return known


def main() -> None:
    """Print one line a seed, and the averages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real corpora")
    parser.add_argument("--batch-sizes", default="8,32,64,128")
    parser.add_argument("--seeds", type=int, default=5)
    flags = parser.parse_args()
    trees = load_corpus("datasets.sst", "train", flags.data, sha256=None)
    print("| B | seed | bound | minimum | critical_share | beam_20 |")
    print("|---|---|---|---|---|---|")
    ratios: list[list[float]] = []
    for size in map(int, flags.batch_sizes.split(",")):
        for seed in range(flags.seeds):
            model = TreeLSTM2Type(ModelSizes(hidden_size=4, data=trees.sizes), type_seed=seed)
            graph = released_graph(model, model.mini_batch(trees.instances[:size]))
            counts = [load_policy(name)(graph).n_batches for name in POLICIES]
            states = [TreeStates(model.mini_batch([tree]).graph) for tree in trees.instances[:size]]
            known = (min(counts) - OTHERS) // PER_CHOICE
            minimum = fewest_choices(states, known) * PER_CHOICE + OTHERS
            row = [minimum, *counts]
            ratios.append([n / lower_bound(graph) for n in row])
            print(f"| {size} | {seed} | {lower_bound(graph)} | {' | '.join(map(str, row))} |")
    means = [f"{statistics.mean(column):.3f}" for column in zip(*ratios, strict=True)]
    print(f"| average over the bound | | 1 | {' | '.join(means)} |")


if __name__ == "__main__":
    main()
