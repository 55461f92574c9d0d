"""Print batch counts over the lower bound, by policy, as docs/critical_share.md shows them.

Graphs are those that ED-Batch's release counts: the first B lattices of each file (a file that has
fewer starts anew), the first B trees of the training file with types drawn by each seed. Behind
them, for B up to 32, come those of operators: the first B instances of the training files. Learned
policies learn on the graph that they are counted on.

    python scripts/compare_policies.py --data $BENCH_DATA --policies critical_share,fsm_sort
    python scripts/compare_policies.py --data $BENCH_DATA --only-times --policies agenda,frontier
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from harness.contracts.corpus import Corpus, load_corpus
from harness.contracts.model import Model, ModelSizes
from harness.contracts.policy import LearningSettings, Policy, is_learned, learn_policy, load_policy
from harness.granularity.operators import operator_graph
from harness.granularity.released import released_graph
from harness.granularity.vertices import VertexModel
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
N_TURNS = 300


def main() -> None:
    """Count, and print one table of ratios and one of times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real corpora")
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--batch-sizes", default="8,32,64,128")
    parser.add_argument("--only-times", action="store_true", help="count nothing")
    parser.add_argument("--seeds", type=int, default=5, help="of TreeLSTM-2Type")
    flags = parser.parse_args()
    policies = flags.policies.split(",")
    if not flags.only_times:
        print_ratios(
            flags.data, policies, [int(n) for n in flags.batch_sizes.split(",")], flags.seeds
        )
    print_times(flags.data, policies)


def print_ratios(data: Path, policies: list[str], sizes: list[int], n_seeds: int) -> None:
    """Print batches over the lower bound, and their averages."""
    print(f"| graph | bound | {' | '.join(policies)} |")
    print("|---|---|" + "---|" * len(policies))
    averages: dict[str, list[list[float]]] = {}
    for model, name, graph in graphs(data, sizes, n_seeds):
        bound = lower_bound(graph)
        ratios = [count(policy, graph) / bound for policy in policies]
        averages.setdefault(model, []).append(ratios)
        print(row(f"{model}, {name}", str(bound), ratios), flush=True)
    for model, rows in averages.items():
        print(
            row(f"**{model}, average**", "", [statistics.mean(c) for c in zip(*rows, strict=True)])
        )


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
    """Print what a schedule of 64 instances takes, and over that of the first policy.

    Policies take turns; ratios are of one turn each. Medians, and ranges of the middle half.
    """
    print("\n| graph of 64 | vertices | policy | ms | over the first | batches |")
    print("|---|---|---|---|---|---|")
    for name, graph in timed_graphs(data):
        run = {policy: scheduler(policy, graph) for policy in policies}
        n_batches = {policy: one(graph).n_batches for policy, one in run.items()}
        turns = [[call_s(one, graph) for one in run.values()] for _ in range(N_TURNS)]
        for k, policy in enumerate(policies):
            taken = quartiles([turn[k] * 1e3 for turn in turns], 3)
            ratio = quartiles([turn[k] / turn[0] for turn in turns], 2)
            print(
                f"| {name} | {graph.n_vertices} | {policy} | {taken} | {ratio} |"
                f" {n_batches[policy]} |"
            )


def timed_graphs(data: Path) -> Iterator[tuple[str, Graph]]:
    """Yield the name and the graph of 64 instances of the training files, at all granularities."""
    lattices, trees = load_lattices(data, "train"), load_corpus("datasets.sst", "train", data)
    for cls, corpus in ((LatticeLSTM, lattices), (TreeLSTM, trees)):
        model, instances = build(cls, corpus), corpus.instances[:64]
        for outputs in ("stage", "vertices"):
            graph = VertexModel(model, outputs=outputs).mini_batch(instances).graph
            yield f"{cls.__name__}, outputs={outputs}", graph
        mini_batch = model.mini_batch(instances)
        yield f"{cls.__name__}, released", released_graph(model, mini_batch)
        yield f"{cls.__name__}, operators", operator_graph(model, mini_batch)


def scheduler(policy: str, graph: Graph) -> Policy:
    """Return a policy, learned on the graph if it is learned, which has run once."""
    learned = is_learned(policy)
    run = learn_policy(policy, [graph], LearningSettings()) if learned else load_policy(policy)
    run(graph)
    return run


def call_s(run: Policy, graph: Graph) -> float:
    """Return the seconds of one schedule."""
    started = time.perf_counter()
    run(graph)
    return time.perf_counter() - started


def quartiles(found: list[float], digits: int) -> str:
    """Return the median, and between what the middle half lies."""
    low, median, high = statistics.quantiles(found, n=4)
    return f"{median:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


if __name__ == "__main__":
    main()
