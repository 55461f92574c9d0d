"""Policies agenda and depth compared with real DyNet: the same batches, in the same order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pytest

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.contracts.policy import load_policy
from dynbatch.harness.granularity.operators import OperatorModel
from dynbatch.harness.values.graph import Graph
from dynbatch.harness.vertex import VertexTracer, sigmoid, spread, sum_edges, tanh
from tests.support.chain_models import (
    SENTENCES,
    SPELLED,
    SPELLED_SIZES,
    SPELLER,
    TAGGER,
    AffineBiLSTM,
    AffineBiLSTMChar,
)
from tests.support.processes import end_python
from tests.support.random_graphs import graph_of
from tests.support.sketch_models import SIZES, ChildSum, some_forests

pytestmark = [
    pytest.mark.dynet,
    pytest.mark.skipif(find_spec("_dynet") is None, reason="DyNet is not installed"),
]
POLICIES = {"agenda": 1, "depth": 2}
# DyNet never batches parameters, constants, and joined or summed mini-batches: type 0.
KINDS = {
    r"(const_)?parameters\(|constant|concat_batch_elems|sum_dim": "parameter",
    "lookup_parameters": "lookup",
    r"\\sigma": "sigmoid",
    "pickneglogsoftmax": "pick_neg_log_softmax",
    r"v\d+ \\cdot": "mul",
    r"v\d+ \+ .* \*": "affine",
    r"v\d+ \*": "matmul",
}
# DyNet batches these whatever their sizes (Neubig et al., NIPS 2017, appendix A).
COMPONENTWISE = re.compile("sigmoid|tanh|add|mul|sum of|rectify|ReLU|exp")
NODE = re.compile(r'N(\d+) \[label="v\d+ = (.*?) +\(MEM: +(.*)\)"\]')


class Dynet(NamedTuple):
    """Sizes of the batches that DyNet executes, in order, and the graph that it prints."""

    batches: list[int]
    graph: Graph
    kinds: Counter[str]


@cache
def dynet(policy: str, model: str) -> Dynet:
    """Run a program of dynet_batches."""
    done = end_python("tests/support/dynet_batches.py", str(POLICIES[policy]), model)
    assert done.returncode == 0, done.stderr
    printed = done.stdout + done.stderr
    sums = re.findall(r"esum expression (\d+)/", printed)
    nodes = [
        (text.replace("+", "++") if number in sums else text, size)
        for number, text, size in NODE.findall(printed)
    ]
    signatures = ["parameter", *(signature(*node) for node in nodes)]
    names = list(dict.fromkeys(signatures))
    graph = graph_of(
        types=[names.index(name) for name in signatures[1:]],
        args=[[int(arg) for arg in re.findall(r"\bv(\d+)", text)] for text, _ in nodes],
        cheap=[kind_of(name) not in ("affine", "matmul") for name in names],
    )
    batches = [int(size) for size in re.findall(r"BatchSize:(\d+)", printed)]
    return Dynet(batches, graph, Counter(kind_of(text) for text, _ in nodes))


def kind_of(text: str) -> str:
    """Return this project's name of an operator; sums by their number of terms, "++" for a list."""
    for pattern, kind in KINDS.items():
        if re.match(pattern, text):
            return kind
    n_added = len(re.split(r" \+{1,2} ", text))
    if n_added > 1:
        return "add" if n_added == 2 and "++" not in text else f"sum of {n_added}"
    return re.split(r"\W", text)[0]


def signature(text: str, size: str) -> str:
    """Return the signature by which DyNet batches nodes; for matmuls it has the left factor."""
    kind = kind_of(text)
    if kind == "parameter":
        return kind
    if kind in ("affine", "matmul"):
        return re.sub(r"\* v\d+", "*", text)
    if COMPONENTWISE.match(kind):
        return kind
    return re.sub(r"\bv\d+|_{.*}", "", text) + size


@pytest.mark.parametrize("model", ["tree_lstm", "child_sum", "bilstm", "bilstm_char", "var_lstm"])
@pytest.mark.parametrize("policy", POLICIES)
def test_batches_are_those_of_dynet(policy: str, model: str) -> None:
    theirs = dynet(policy, model)
    schedule = load_policy(policy)(theirs.graph)
    assert len(theirs.batches) > 50
    assert np.diff(schedule.starts).tolist() == theirs.batches


class AffineChildSum(ChildSum):
    """The child-sum Tree-LSTM with its three gates as one affine transform of two matmuls."""

    def vertex(self, v: VertexTracer) -> None:
        x, children = v.lookup("embedding", v.pull("word")), v.gather_each()
        products = x @ v.parameter("W") + sum_edges(children.h) @ v.parameter("U")
        i, o, u = v.split(products + v.parameter("b"), 3)
        own = spread(x @ v.parameter("W_f") + v.parameter("b_f"))
        f = sigmoid(children.h @ v.parameter("U_f") + own)
        c = sigmoid(i) * tanh(u) + sum_edges(f * children.c)
        v.scatter(c=c, h=sigmoid(o) * tanh(c))


def compare(
    of_dynet: Dynet, model: Model, instances: Sequence[Any]
) -> tuple[Graph, Counter[str], Counter[str], int]:
    """Return the model's graph, operators of both by kind, and DyNet's number of parameters.

    Operators are without their parameters and columns, and without the sum of losses.
    """
    expanded, theirs = OperatorModel(model).mini_batch(instances), of_dynet.kinds.copy()
    names = (expanded.graph.type_names[f] for f in expanded.functions)
    ours = Counter(re.sub(r"^(?!sum)(\w+) .*", r"\1", name) for name in names)
    n_parameters = theirs.pop("parameter")
    assert theirs.pop(f"sum of {theirs['pick_neg_log_softmax']}") == 1
    return expanded.graph, ours, theirs, n_parameters


@pytest.mark.parametrize("policy", POLICIES)
def test_operators_of_a_child_sum_are_dynets(policy: str) -> None:
    """Counts by kind and batches are equal, except for parameter nodes and the sum of losses."""
    theirs = dynet(policy, "child_sum")
    graph, ours, names, n_parameters = compare(theirs, AffineChildSum(SIZES), some_forests())
    n_parameters -= ours.pop("zeros")
    assert ours == names
    assert load_policy(policy)(graph).n_batches + n_parameters + 1 == len(theirs.batches)


@pytest.mark.parametrize("policy", POLICIES)
def test_operators_of_a_tagger_are_dynets(policy: str) -> None:
    """Counts by kind and batches are equal, except for parameter nodes and the sum of losses.

    A learned state is a parameter node in DyNet, and a vertex of every sentence in this project,
    where each direction also looks up its own words.
    """
    theirs = dynet(policy, "bilstm")
    graph, ours, names, n_parameters = compare(theirs, AffineBiLSTM(TAGGER.sizes), SENTENCES)
    assert ours.pop("parameter") == 4 * len(SENTENCES)
    names["lookup"] *= 2
    assert ours == names
    n_batches = load_policy(policy)(graph).n_batches
    assert n_batches - 4 == len(theirs.batches) - n_parameters - 1


@pytest.mark.parametrize("policy", POLICIES)
def test_componentwise_operators_of_letters_and_words_share_batches(policy: str) -> None:
    """Letters are half as wide as words; batches are DyNet's, as for the tagger without letters.

    DyNet's program also computes the forget gate of a word's first letter, which nothing reads, and
    looks up a letter once for both directions. The batches without those gates are the policy's,
    which the first test compares with DyNet's on DyNet's whole graph.
    """
    theirs = dynet(policy, "bilstm_char")
    model = AffineBiLSTMChar(SPELLED_SIZES, mlp_size=SPELLER.mlp_size)
    graph, ours, names, n_parameters = compare(theirs, model, SPELLED)
    assert ours.pop("parameter") == 4 * len(SPELLED)
    n_letters = np.concatenate([np.diff(sentence.char_start) for sentence in SPELLED])
    names["lookup"] += n_letters.sum()
    names -= Counter(dict.fromkeys(("slice", "sigmoid"), 2 * np.count_nonzero(n_letters)))
    assert ours == names
    n_batches = load_policy(policy)(graph).n_batches
    n_of_theirs = load_policy(policy)(drop_unread(theirs.graph)).n_batches
    assert n_batches - 4 == n_of_theirs - n_parameters - 1


def drop_unread(graph: Graph) -> Graph:
    """Return a graph without the vertices that the last one does not need."""
    needed = np.zeros(graph.n_vertices, dtype=np.bool_)
    needed[-1] = True
    for v in reversed(range(graph.n_vertices)):
        if needed[v]:
            needed[graph.select_args(v)] = True
    new_id = np.cumsum(needed) - 1
    kept = np.flatnonzero(needed)
    args = [new_id[graph.select_args(v)].tolist() for v in kept]
    return graph_of(graph.types[kept].tolist(), args, graph.n_types, cheap=graph.cheap.tolist())


@pytest.mark.parametrize("policy", POLICIES)
def test_a_tagger_of_two_layers_has_as_many_batches(policy: str) -> None:
    """DyNet has one more node for every parameter except the table, and for the sum of losses."""
    theirs = dynet(policy, "bilstm_2").batches
    model = AffineBiLSTM(TAGGER.sizes, layers=2)
    ours = load_policy(policy)(OperatorModel(model).mini_batch(SENTENCES).graph).n_batches
    n_states = sum(name[1:].startswith("_0_") for name in model.parameters)
    assert ours - n_states == len(theirs) - (len(model.parameters) - 1) - 1


@pytest.mark.parametrize(("model", "fewer", "more"), [
    ("bilstm", "agenda", "depth"), ("bilstm_2", "depth", "agenda")
])  # fmt: skip
def test_agenda_and_depth_differ_on_taggers(model: str, fewer: str, more: str) -> None:
    """Depth cannot batch tags of different words; agenda has one mean depth for both layers."""
    few, many = (dynet(policy, model).batches for policy in (fewer, more))
    assert sum(few) == sum(many)
    assert len(few) < 0.9 * len(many)
