"""Our agenda and depth policies against real DyNet: the same batches, in the same order."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.contracts.policy import load_policy
from harness.granularity.operators import OperatorModel
from harness.values.places import ROOT
from harness.vertex import VertexTracer, sigmoid, spread, sum_edges, tanh
from tests.support.chain_models import SENTENCES, TAGGER, AffineBiLSTM
from tests.support.random_graphs import graph_of
from tests.support.sketch_models import SIZES, ChildSum
from tests.support.sketches import some_forests

PROGRAM = ROOT / "tests" / "support" / "dynet_batches.py"


needs_dynet = pytest.mark.skipif(find_spec("_dynet") is None, reason="DyNet is not installed")
POLICIES = {"agenda": 1, "depth": 2}


def dynet(policy: str, model: str, folder: Path) -> tuple[list[int], dict[str, Any]]:
    """Sizes of the batches that DyNet executes, in order, and the graph as it was written down."""
    file = folder / "graph.json"
    sizes = batch_sizes(policy, str(file), model)
    return sizes, json.loads(file.read_text())


def batch_sizes(policy: str, *arguments: str) -> list[int]:
    """Run a program of dynet_batches; sizes of the batches that DyNet executes, in order."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(POLICIES[policy]), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return [int(size) for size in re.findall(r"BatchSize:(\d+)", done.stdout + done.stderr)]


@pytest.mark.dynet
@needs_dynet
@pytest.mark.parametrize("model", ["tree_lstm", "child_sum", "bilstm", "var_lstm"])
@pytest.mark.parametrize("policy", POLICIES)
def test_batches_are_those_of_dynet(policy: str, model: str, tmp_path: Path) -> None:
    theirs, written = dynet(policy, model, tmp_path)
    del written["names"]
    schedule = load_policy(policy)(graph_of(**written))
    ours = np.diff(schedule.starts).tolist()
    assert len(theirs) > 50
    assert ours == theirs


class AffineChildSum(ChildSum):
    """The child-sum Tree-LSTM with its three gates as one affine transform of two products."""

    def vertex(self, v: VertexTracer) -> None:
        x, children = v.lookup("embedding", v.pull("word")), v.gather_each()
        products = x @ v.parameter("W") + sum_edges(children.h) @ v.parameter("U")
        i, o, u = v.split(products + v.parameter("b"), 3)
        own = spread(x @ v.parameter("W_f") + v.parameter("b_f"))
        f = sigmoid(children.h @ v.parameter("U_f") + own)
        c = sigmoid(i) * tanh(u) + sum_edges(f * children.c)
        v.scatter(c=c, h=sigmoid(o) * tanh(c))


def kind(name: str) -> str:
    """An operator without its parameters and columns."""
    return "pick_neg_log_softmax" if name == "loss" else re.sub(r"^(?!sum)(\w+) .*", r"\1", name)


@pytest.mark.dynet
@needs_dynet
@pytest.mark.parametrize("policy", POLICIES)
def test_operators_of_a_child_sum_are_dynets(policy: str, tmp_path: Path) -> None:
    """As many of each kind, and as many batches, but for parameter nodes and the sum of losses."""
    theirs, written = dynet(policy, "child_sum", tmp_path)
    expanded = OperatorModel(AffineChildSum(SIZES)).mini_batch(some_forests())
    graph = expanded.graph
    ours = Counter(kind(graph.type_names[f]) for f in expanded.functions)
    names = Counter(kind(written["names"][t]) for t in written["types"])
    n_parameters = names.pop("parameter") - ours["zeros"]
    assert names.pop("sum") == 1
    assert Counter({k: n for k, n in ours.items() if k != "zeros"}) == names
    assert load_policy(policy)(graph).n_batches + n_parameters + 1 == len(theirs)


@pytest.mark.dynet
@needs_dynet
@pytest.mark.parametrize("model", ["bilstm", "var_lstm"])
@pytest.mark.parametrize("policy", POLICIES)
def test_programs_of_the_adapter_are_what_is_written_down(
    policy: str, model: str, tmp_path: Path
) -> None:
    theirs, _ = dynet(policy, model, tmp_path)
    assert batch_sizes(policy, "(nothing)", model, "program") == theirs


@pytest.mark.dynet
@needs_dynet
@pytest.mark.parametrize("policy", POLICIES)
def test_operators_of_a_tagger_are_dynets(policy: str, tmp_path: Path) -> None:
    """As many of each kind, and as many batches, but for parameter nodes and the sum of losses.

    A learned state is a parameter node in DyNet, and of every sentence with us; and with us each
    direction looks up its own words.
    """
    theirs, written = dynet(policy, "bilstm", tmp_path)
    expanded = OperatorModel(AffineBiLSTM(TAGGER.sizes)).mini_batch(SENTENCES)
    ours = Counter(kind(expanded.graph.type_names[f]) for f in expanded.functions)
    names = Counter(kind(written["names"][t]) for t in written["types"])
    n_parameters, n_states = names.pop("parameter"), ours.pop("parameter")
    assert (names.pop("sum"), n_states) == (1, 4 * len(SENTENCES))
    names["lookup"] *= 2
    assert ours == names
    n_batches = load_policy(policy)(expanded.graph).n_batches
    assert n_batches - 4 == len(theirs) - n_parameters - 1


@pytest.mark.dynet
@needs_dynet
@pytest.mark.parametrize("policy", POLICIES)
def test_a_tagger_of_two_layers_has_as_many_batches(policy: str) -> None:
    """DyNet's has a node for every parameter but the table, and the sum of losses, one each."""
    theirs = batch_sizes(policy, "(nothing)", "bilstm_2", "program")
    model = AffineBiLSTM(TAGGER.sizes, layers=2)
    ours = load_policy(policy)(OperatorModel(model).mini_batch(SENTENCES).graph).n_batches
    n_states = sum(name[1:].startswith("_0_") for name in model.parameters)
    assert ours - n_states == len(theirs) - (len(model.parameters) - 1) - 1


@pytest.mark.dynet
@needs_dynet
@pytest.mark.parametrize(("model", "fewer", "more"), [
    ("bilstm", "agenda", "depth"), ("bilstm_2", "depth", "agenda")
])  # fmt: skip
def test_agenda_and_depth_differ_on_taggers(model: str, fewer: str, more: str) -> None:
    """Depth cannot batch tags of different words; agenda has one mean depth for both layers."""
    few, many = (batch_sizes(policy, "(nothing)", model, "program") for policy in (fewer, more))
    assert sum(few) == sum(many)
    assert len(few) < 0.9 * len(many)
