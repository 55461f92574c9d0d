"""Program that runs a model in real DyNet, which prints its graph and every batch it executes.

Arguments: DyNet's autobatch mode, the name of the model, and optionally a patch to load before
DyNet.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

patch = ctypes.CDLL(sys.argv[3], mode=ctypes.RTLD_GLOBAL) if sys.argv[3:] else None

import dynet_config  # noqa: E402 - after the patch, which replaces functions of DyNet

dynet_config.set(mem="256", random_seed=1, autobatch=int(sys.argv[1]), profiling=2)
import dynet as dy  # noqa: E402 - settings are read when it is imported
import numpy as np  # noqa: E402

from dynbatch.harness.contracts.model import Model, draw_initial_weights  # noqa: E402
from dynbatch.harness.models.tree_lstm import TreeLSTM  # noqa: E402
from dynbatch.systems.on_dynet.models.sentences import NETWORKS as SENTENCE_NETWORKS  # noqa: E402
from dynbatch.systems.on_dynet.models.trees import TreeLSTM as TreeLSTMNetwork  # noqa: E402
from dynbatch.systems.on_dynet.runtime import ParameterStore  # noqa: E402
from tests.support.chain_models import (  # noqa: E402
    SENTENCES,
    SIZES,
    SPELLED,
    SPELLER,
    TAGGER,
    TAGGER_OF_TWO,
    WORDS,
)
from tests.support.instances import random_tree  # noqa: E402
from tests.support.sketch_models import some_forests  # noqa: E402

H = SIZES.hidden_size
N_PRODUCTS = 6
TREES = [random_tree(n, SIZES, np.random.default_rng(n)) for n in (1, 2, 9, 4, 13, 20, 7, 3, 25)]
NETWORKS: dict[str, tuple[Any, Model, list[Any]]] = {
    "tree_lstm": (TreeLSTMNetwork, TreeLSTM(SIZES), TREES),
    "bilstm": (SENTENCE_NETWORKS["bilstm"], TAGGER, SENTENCES),
    "bilstm_2": (SENTENCE_NETWORKS["bilstm"], TAGGER_OF_TWO, SENTENCES),
    "bilstm_char": (SENTENCE_NETWORKS["bilstm_char"], SPELLER, SPELLED),
    "var_lstm": (SENTENCE_NETWORKS["var_lstm"], WORDS, SENTENCES),
}


def evaluate(expression: Any) -> None:
    dy.print_text_graphviz()
    expression.forward()


def run_network(name: str) -> None:
    """Run the adapter's own program, after nodes that tie."""
    network, model, instances = NETWORKS[name]
    store = ParameterStore(draw_initial_weights(model, seed=0))
    program = network(model, store)
    if name == "tree_lstm":
        add_ties(store.collection)
    for built in program.build([program.read(instance) for instance in instances]):
        evaluate(built.loss)


def add_ties(parameters: Any) -> None:
    """Add three types of equal average depth that differ by size; the first is not cheap."""
    x = dy.lookup(parameters.add_lookup_parameters((1, H)), 0)
    b, W = parameters.add_parameters((H,)), parameters.add_parameters((H, H))
    for _ in range(2):
        dy.affine_transform([b.expr(), W.expr(), x])
    for _ in range(3):
        dy.rectify(x)
    for _ in range(4):
        dy.exp(x)


def run_child_sum() -> None:
    """Run a child-sum Tree-LSTM (tests/support/sketch_models.py), which is not in any adapter."""
    parameters = dy.ParameterCollection()
    table = parameters.add_lookup_parameters((100, H))
    shapes = ((3 * H, H), (3 * H, H), (3 * H,), (H, H), (H, H), (H,), (5, H))
    W, U, b, W_f, U_f, b_f, W_out = (parameters.add_parameters(s).expr() for s in shapes)
    losses = []
    for sketch in some_forests():
        states: list[Any] = []
        for k, (_, args) in enumerate(sketch.vertices):
            x, children = dy.lookup(table, k), [states[a] for a in args]
            if children:
                own = dy.affine_transform([b_f, W_f, x])
                kept = total([dy.cmult(dy.logistic(U_f * h + own), c) for c, h in children])
                summed = total([h for _, h in children])
            else:
                summed = kept = dy.zeros(H)
            gates = dy.affine_transform([b, W, x, U, summed])
            i, o, u = (dy.pick_range(gates, s, s + H) for s in (0, H, 2 * H))
            c = dy.cmult(dy.logistic(i), dy.tanh(u)) + kept
            states.append((c, dy.cmult(dy.logistic(o), dy.tanh(c))))
            losses.append(dy.pickneglogsoftmax(W_out * states[-1][1], k % 5))
    evaluate(dy.esum(losses))


def total(parts: list[Any]) -> Any:
    """Return the sum of parts, and print sums: DyNet's graph shows sums of two like additions."""
    if len(parts) == 1:
        return parts[0]
    found = dy.esum(parts)
    print(f"esum {found!r}")
    return found


def run_products() -> None:
    """Run matmuls with one parameter, and as many with computed matrices."""
    rng = np.random.default_rng(0)
    W, M = rng.standard_normal((2, N_PRODUCTS, 3, 3))
    v = rng.standard_normal((N_PRODUCTS, 3))
    parameters = dy.ParameterCollection()  # owns the memory of its parameters
    parameter = parameters.add_parameters((3, 3), init=W[0])
    shared = [parameter * dy.inputTensor(row) for row in v]
    own = [dy.tanh(dy.inputTensor(m)) * x for m, x in zip(M, shared, strict=True)]
    evaluate(dy.esum([dy.sum_elems(value) for value in own]))
    expected = [np.tanh(m) @ W[0] @ row for m, row in zip(M, v, strict=True)]
    assert np.allclose([value.npvalue() for value in own], expected, rtol=1e-4, atol=1e-5)
    assert patch is None or patch.product_signature_in_force()


if __name__ == "__main__":
    dy.renew_cg()
    others = {"child_sum": run_child_sum, "products": run_products}
    if (name := sys.argv[2]) in others:
        others[name]()
    else:
        run_network(name)
