"""Sequence models in real DyNet, operator by operator as the adapter's programs build them.

Import it only where DyNet has been told its settings. `r` is a Recorder of
tests/support/dynet_batches.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dynet as dy

from harness.contracts.model import initial_weights
from systems.on_dynet.models.sentences import BiLSTMNetwork, VarLSTMNetwork
from systems.on_dynet.runtime import ParameterStore
from tests.support.chain_models import SENTENCES, TAGGER, TAGGER_OF_TWO, WORDS

NETWORKS = {
    "bilstm": (BiLSTMNetwork, TAGGER),
    "bilstm_2": (BiLSTMNetwork, TAGGER_OF_TWO),
    "var_lstm": (VarLSTMNetwork, WORDS),
}
H = TAGGER.sizes.hidden_size


def run_program(name: str) -> None:
    """The adapter's own program."""
    network, model = NETWORKS[name]
    program = network(model, ParameterStore(initial_weights(model, seed=0)))
    dy.renew_cg()
    for built in program.build([program.read(sentence) for sentence in SENTENCES]):
        built.loss.forward()


def step(r: Any, name: str, x: Any, state: tuple[Any, Any] | None) -> tuple[Any, Any]:
    """A step of DyNet's LSTM: its cell and its output."""
    if state is None:
        gates = r.affine(f"b_{name}", f"W_{name}", x)
    else:
        gates = r.affine(f"b_{name}", f"W_{name}", x, f"U_{name}", state[1])
    i, f, o, g = r.split(gates, 4)
    i, f, o, g = r.sigmoid(i), r.sigmoid(f), r.sigmoid(o), r.tanh(g)
    c = r.mul(i, g) if state is None else r.plus(r.mul(f, state[0]), r.mul(i, g))
    return c, r.mul(o, r.tanh(c))


def read(r: Any, name: str, vectors: Sequence[Any], state: tuple[Any, Any] | None) -> list[Any]:
    outputs = []
    for x in vectors:
        state = step(r, name, x, state)
        outputs.append(state[1])
    return outputs


def forward_bilstm(r: Any) -> None:
    losses = []
    starts = {
        d: (r.parameter(f"c_0_{d}"), r.parameter(f"h_0_{d}")) for d in ("forward", "backward")
    }
    for sentence in SENTENCES:
        vectors = [r.lookup(word) for word in sentence.words.tolist()]
        there = read(r, "forward", vectors, starts["forward"])
        back = read(r, "backward", vectors[::-1], starts["backward"])[::-1]
        for h_f, h_b, label in zip(there, back, sentence.labels.tolist(), strict=True):
            t = r.tanh(r.affine("b_tag", "F_tag", h_f, "B_tag", h_b))
            losses.append(r.loss(t, label))
    r.add(dy.esum([loss for loss, _ in losses]), "sum", *losses)[0].forward()


def forward_var_lstm(r: Any) -> None:
    hidden: list[Any] = []
    labels: list[int] = []
    for sentence in SENTENCES:
        hidden += read(r, "forward", [r.lookup(word) for word in sentence.words.tolist()], None)
        labels += sentence.labels.tolist()
    together = r.add(dy.concatenate_to_batch([h for h, _ in hidden]), "parameter", *hidden)
    logits = r.affine("b_words", "W_words", together)
    loss = r.add(dy.pickneglogsoftmax_batch(logits[0], labels), "loss", logits)
    r.add(dy.sum_batches(loss[0]), "parameter", loss)[0].forward()
