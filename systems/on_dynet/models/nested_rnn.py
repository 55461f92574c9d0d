"""NestedRNN in DyNet, written for one instance; all go on together, an outer step a round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from harness.models.nested_rnn import NestedRNN
from harness.values.instances import Chain
from systems.on_dynet.classifier import classified
from systems.on_dynet.rounds import Part
from systems.on_dynet.runtime import ParameterStore
from systems.on_dynet.together import Program, together

Loops = tuple[int, int, list[int]]  # word, label, inner steps of every outer one


class Network:
    """Equations of harness.models.nested_rnn.

    z h + (1 - z) n is written n + z (h - n), since DyNet has no batched kernel of 1 - z. r and z of
    one affine transform take as long (174 ms a mini-batch of 64, hidden 256, either way).
    """

    def __init__(self, model: NestedRNN, store: ParameterStore) -> None:
        self.loops = model.loops
        self.embedding = store.table("embedding")
        self.inner = [*store.vectors("b"), *store.matrices("U")]
        self.inputs = [*store.vectors("b_gates", 3), *store.matrices("W_x", 3)]
        self.states = [*store.matrices("W_h", 2), *store.matrices("U_n")]
        self.classifier = store.matrices("W_out")[0]

    def read(self, chain: Chain) -> Loops:
        """An instance as a DyNet program holds it: Python numbers."""
        return int(chain.words[0]), int(chain.labels[0]), self.loops(chain)

    def build(self, instances: Sequence[Loops]) -> Iterator[Part]:
        """Outer states of all instances, a step a round; then the scores of all of them."""
        inner = [p.expr(True) for p in self.inner]
        outer = [p.expr(True) for p in (*self.inputs, *self.states)]
        programs = [self._states(word, loops, inner, outer) for word, _, loops in instances]
        states = yield from together(programs)
        labels = [label for _, label, loops in instances for _ in loops]
        yield classified(self.classifier, [state for own in states for state in own], labels)

    def _states(
        self, word: int, loops: Sequence[int], inner: Sequence[Any], outer: Sequence[Any]
    ) -> Program[list[Any]]:
        """Every state decides how often the inner loop runs; the first one also the outer loop."""
        affine, tanh = dy.affine_transform, dy.tanh
        b, U = inner
        states = [dy.lookup(self.embedding, word)]
        for n_inner in loops:
            yield states[-1]
            h = states[-1]
            for _ in range(n_inner):
                h = tanh(affine([b, U, h]))
            states.append(_gru(outer, h, states[-1]))
        return states[1:]


def _gru(weights: Sequence[Any], x: Any, h: Any) -> Any:
    affine, logistic = dy.affine_transform, dy.logistic
    b_r, b_z, b_n, W_r, W_z, W_n, U_r, U_z, U_n = weights
    r = logistic(affine([b_r, W_r, x, U_r, h]))
    z = logistic(affine([b_z, W_z, x, U_z, h]))
    n = dy.tanh(affine([b_n, W_n, x, U_n, dy.cmult(r, h)]))
    return n + dy.cmult(z, h - n)


NETWORKS = {"nested_rnn": Network}
