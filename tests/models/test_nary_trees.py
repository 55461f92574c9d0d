"""Trees with any number of children, run as they are by models that accept them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.contracts.corpus import Corpus, load_corpus
from dynbatch.harness.contracts.model import Model, draw_initial_weights
from dynbatch.harness.contracts.networks import explain_binary_only, explain_unrunnable
from dynbatch.harness.counts.request import GraphSource, parse_request
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import ConfigError, DataError
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.programs.blocks import RecordingOptions
from dynbatch.harness.programs.model import make_recorded_model
from dynbatch.harness.reference import run_reference
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.trials.workload import build_model
from dynbatch.harness.values.instances import NaryTree, compute_sort_key
from tests.support.engine_runs import disagreements, prepared, run

TEXT = """(ROOT (S (NP (PRP They))
  (VP (VBD came) (ADV here) (ADV then) (. !))))
(A (B b) (C c))
( (X (Y (Z z)) (X (A a) (B b) (C c))) )
(L leaf)
"""
BINARY = "(A (B b) (C c))\n(L leaf)\n"
CHILD_SUM = "tree_lstm_child_sum"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.txt"
    file.write_text(TEXT)
    return file


def resolve(file: Path, model: str = CHILD_SUM, **options: Any) -> TrialSpec:
    chosen = {f"dataset.options.{name}": value for name, value in options.items()}
    sizes = {"hidden_size": 5, "batch_size": 4, "dataset": "trees", "dataset.path": str(file)}
    return Composer().resolve_trial({"model": model, **sizes, **chosen})


def load(spec: TrialSpec) -> tuple[Corpus, Model]:
    corpus = load_corpus(spec.loader, "train", None, **spec.dataset_options)
    return corpus, build_model(spec, corpus.sizes)


def test_trees_are_read_as_they_are(mine: Path) -> None:
    corpus, model = load(resolve(mine))
    assert (corpus.sizes["children"], model.max_children) == (4, 4)
    tree: Any = corpus.instances[0]
    names = [corpus.label_names[label] for label in tree.labels]
    assert names == ["PRP", "NP", "VBD", "ADV", "ADV", ".", "VP", "S", "ROOT"]
    assert tree.words.tolist() == [0, -1, 1, 2, 3, 4, -1, -1, -1]
    assert tree.child_start.tolist() == [0, 0, 1, 1, 1, 1, 1, 5, 7, 8]
    assert tree.children.tolist() == [0, 2, 3, 4, 5, 1, 6, 7]
    assert (tree.n_vertices, tree.n_leaves, tree.height) == (9, 5, 3)
    assert [compute_sort_key(tree) for tree in corpus.instances] == [(5,), (2,), (4,), (1,)]
    outermost: Any = corpus.instances[2]  # a vertex without a label is merged with its child
    assert corpus.label_names[outermost.labels[-1]] == "X"


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        (([], [], [0], []), "a tree has no vertices"),
        (([0, -1], [0], [0, 0, 1], [0]), "has 1 labels"),
        (([0, -1], [0, 0], [0, 1, 0], [0]), "child_start does not increase"),
        (([0, 1], [0, 0], [0, 0, 1], [0]), "a leaf has no word"),
        (([-1, 0], [0, 0], [0, 1, 1], [1]), "a child comes after its parent"),
        (([0, 1, -1], [0, 0, 0], [0, 0, 0, 2], [0, 0]), "a tree is not connected"),
    ],
)
def test_wrong_trees_are_refused(arrays: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        NaryTree(*arrays)


def test_the_choice_of_the_model_is_in_the_record(mine: Path) -> None:
    assert resolve(mine).dataset_options["binarize"] == "none"
    for model in ("tree_lstm", "tree_gru", "tree_fc", "mv_rnn"):
        spec = resolve(mine, model)
        assert spec.dataset_options["binarize"] == "right"
        assert spec.trial_id == resolve(mine, model, binarize="right").trial_id
    for side in ("left", "right"):
        spec = resolve(mine, binarize=side)
        assert spec.dataset_options["binarize"] == side
        assert spec.trial_id != resolve(mine).trial_id
        assert load(spec)[1].max_children is None
    with pytest.raises(
        ConfigError, match=r"tree_lstm runs binary trees, but .*; set right or left"
    ):
        resolve(mine, "tree_lstm", binarize="none")


def test_binary_trees_are_the_same_however_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "binary.txt").write_text(BINARY)
    whole, right = (
        load(resolve(tmp_path / "binary.txt", **x)) for x in ({}, {"binarize": "right"})
    )
    assert whole[1].max_children is None
    for one, other in zip(whole[0].instances, right[0].instances, strict=True):
        assert np.array_equal(one.table, other.table)  # type: ignore[union-attr]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def compute_loss(weights: dict[str, Any], trees: Any) -> float:
    """Compute the loss as the paper writes it, vertex by vertex in float64."""
    p = {name: values.astype(np.float64) for name, values in weights.items()}
    loss = 0.0
    for tree in trees:
        states: list[Any] = []
        for v, (word, label) in enumerate(zip(tree.words, tree.labels, strict=True)):
            below = [
                states[c] for c in tree.children[tree.child_start[v] : tree.child_start[v + 1]]
            ]
            inner = sum(h for h, _ in below) @ p["U"] if below else p["embedding"][word] @ p["W"]
            i, o, u = np.split(inner + p["b"], 3)
            c = sigmoid(i) * np.tanh(u)
            c = c + sum(sigmoid(h @ p["U_f"] + p["b_f"]) * inside for h, inside in below)
            states.append((sigmoid(o) * np.tanh(c), c))
            scores = states[-1][0] @ p["W_out"]
            loss += np.log(np.exp(scores).sum()) - scores[label]
    return float(loss)


def test_the_reference_computes_the_equations(mine: Path) -> None:
    corpus, model = load(resolve(mine))
    weights, trees = draw_initial_weights(model, 3), corpus.instances[:]
    assert run_reference(model, weights, trees, "infer").loss == pytest.approx(
        compute_loss(weights, trees), rel=1e-12
    )


@pytest.mark.parametrize(
    ("granularity", "policy", "is_recorded"),
    [("vertex", "depth", False), ("operator", "agenda", False), ("vertex", "inline_depth", True)],
)
def test_the_engine_agrees_with_the_reference(
    mine: Path, granularity: Any, policy: str, is_recorded: bool
) -> None:
    """Also as a recorded program; test_against_reference has all switches, on child_sum."""
    corpus, model = load(resolve(mine))
    weights, trees = draw_initial_weights(model, 3), corpus.instances[:]
    own = make_recorded_model(model, RecordingOptions()) if is_recorded else model
    found = run(prepared(own, weights, Switches(granularity=granularity), policy), trees)
    assert disagreements(found, run_reference(model, weights, trees, "train")) == []


def test_batches_are_counted_at_either_granularity(mine: Path) -> None:
    for granularity in ("vertex", "operator"):
        settings = ["dataset=trees", f"dataset.path={mine}", f"model={CHILD_SUM}", "batch_size=4"]
        request = parse_request([*settings, f"granularity={granularity}", "outputs=stage"])
        graphs = GraphSource(request).build_at(0)
        assert graphs.plain.n_vertices >= 9 + 3 + 7 + 1
        assert graphs.released.n_vertices > 0


@pytest.mark.parametrize(
    "table", ["dynbatch.systems.on_torch.models:LEVELS", "dynbatch.systems.on_jax.models:NETWORKS"]
)
def test_networks_of_frameworks_run_binary_trees(table: str, mine: Path) -> None:
    _, model = load(resolve(mine))
    reason = explain_unrunnable(model, table)
    assert reason.startswith("networks of frameworks run binary trees, but these have up to 4 chil")
    assert explain_unrunnable(load(resolve(mine, binarize="left"))[1], table) is None
    assert explain_binary_only(model) == reason
