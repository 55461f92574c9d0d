"""Print batch counts over the lower bound, by policy, as docs/critical_share.md shows them.

Graphs are those that ED-Batch's release counts: the first B lattices of each file (a file that has
fewer starts anew), the first B trees of the training file with types drawn by each seed. Behind
them, for B up to 32, come those of operators: the first B instances of the training files. Learned
policies learn on the graph that they are counted on.

    python scripts/compare_policies.py --data $BENCH_DATA --policies critical_share,fsm_sort
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Iterator
from pathlib import Path

from harness.contracts.corpus import Corpus, load_corpus
from harness.contracts.model import Model, ModelSizes
from harness.contracts.policy import LearningSettings, is_learned, learn_policy, load_policy
from harness.counts.counting import median_call_s
from harness.granularity.operators import operator_graph
from harness.granularity.released import released_graph
from harness.models.gated_lattice_lstm import GatedLatticeLSTM
from harness.models.lattice_gru import LatticeGRU
from harness.models.lattice_lstm import LatticeLSTM
from harness.models.tree_gru import TreeGRU
from harness.models.tree_lstm import TreeLSTM
from harness.models.tree_lstm_2type import TreeLSTM2Type
from harness.policies.parts.bound import lower_bound
from harness.values.graph import Graph
from harness.values.schedule import check_schedule

POLICIES = "agenda,sufficient,sufficient_reversed,fsm_sort,critical_share,beam_2,beam_20"
OF_OPERATORS: tuple[type[Model], ...] = (
    TreeLSTM,
    TreeGRU,
    LatticeLSTM,
    LatticeGRU,
    GatedLatticeLSTM,
)
SPLITS = ("train", "dev", "test")


def main() -> None:
    """Count, and print one table of ratios and one of times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real corpora")
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--batch-sizes", default="8,32,64,128")
    parser.add_argument("--seeds", type=int, default=5, help="of TreeLSTM-2Type")
    flags = parser.parse_args()
    policies = flags.policies.split(",")
    sizes = [int(size) for size in flags.batch_sizes.split(",")]
    print(f"| graph | bound | {' | '.join(policies)} |")
    print("|---|---|" + "---|" * len(policies))
    averages: dict[str, list[list[float]]] = {}
    for model, name, graph in graphs(flags.data, sizes, flags.seeds):
        bound = lower_bound(graph)
        ratios = [count(policy, graph) / bound for policy in policies]
        averages.setdefault(model, []).append(ratios)
        print(row(f"{model}, {name}", str(bound), ratios), flush=True)
    for model, rows in averages.items():
        print(
            row(f"**{model}, average**", "", [statistics.mean(c) for c in zip(*rows, strict=True)])
        )
    print_times(flags.data, policies)


def row(name: str, bound: str, ratios: list[float]) -> str:
    """Return one line of the table."""
    return f"| {name} | {bound} | " + " | ".join(f"{ratio:.3f}" for ratio in ratios) + " |"


def count(policy: str, graph: Graph) -> int:
    """Return the batches of a policy, whose schedule is proved."""
    if is_learned(policy):
        schedule = learn_policy(policy, [graph], LearningSettings())(graph)
    else:
        schedule = load_policy(policy)(graph)
    check_schedule(graph, schedule)
    return schedule.n_batches


def graphs(data: Path, sizes: list[int], n_seeds: int) -> Iterator[tuple[str, str, Graph]]:
    """Yield the model, the rest of the name, and the graph."""
    for cls, split in itertools.product((LatticeLSTM, LatticeGRU), SPLITS):
        lattices = load_lattices(data, split)
        model = build(cls, lattices)
        for size in sizes:
            instances = list(itertools.islice(itertools.cycle(lattices.instances), size))
            yield (
                cls.__name__,
                f"{split}, {size}",
                released_graph(model, model.mini_batch(instances)),
            )
    trees = load_corpus("datasets.sst", "train", data, sha256=None)
    for size, seed in itertools.product(sizes, range(n_seeds)):
        model = TreeLSTM2Type(ModelSizes(hidden_size=4, data=trees.sizes), type_seed=seed)
        batch = model.mini_batch(trees.instances[:size])
        yield "TreeLSTM-2Type", f"seed {seed}, {size}", released_graph(model, batch)
    lattices = load_lattices(data, "train")
    for cls, size in itertools.product(OF_OPERATORS, (size for size in sizes if size <= 32)):
        corpus = trees if issubclass(cls, TreeLSTM | TreeGRU) else lattices
        built = build(cls, corpus)
        batch = built.mini_batch(corpus.instances[:size])
        yield "operators", f"{cls.__name__}, {size}", operator_graph(built, batch)


def load_lattices(data: Path, split: str) -> Corpus:
    """Return one file of lattices."""
    return load_corpus("datasets.weibo_lattice", split, data, vocab_modulo=0, sha256=None)


def build(cls: type[Model], corpus: Corpus) -> Model:
    """Return a small model for a corpus: batch counts do not depend on the size."""
    return cls(ModelSizes(hidden_size=4, data=corpus.sizes))


def print_times(data: Path, policies: list[str]) -> None:
    """Print the median milliseconds that 64 lattices take at vertex granularity."""
    lattices = load_lattices(data, "train")
    graph = build(LatticeLSTM, lattices).mini_batch(lattices.instances[:64]).graph
    print("\n| policy | schedule of 64 lattices (ms) | batches |")
    print("|---|---|---|")
    for name in policies:
        policy = (
            learn_policy(name, [graph], LearningSettings())
            if is_learned(name)
            else load_policy(name)
        )
        print(f"| {name} | {median_call_s(policy, graph) * 1e3:.3f} | {policy(graph).n_batches} |")


if __name__ == "__main__":
    main()
