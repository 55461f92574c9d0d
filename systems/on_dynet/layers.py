"""Parts of DyNet models: parameters in a graph, classifier, LSTM gates, parallel programs."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import dynet as dy

from dynbatch.systems.on_dynet.runtime import ParameterStore
from dynbatch.systems.on_dynet.segments import GraphSegment, Needed

R = TypeVar("R")
Program = Generator[Any, float, R]  # yields the expressions whose values it needs


def add_to_graph(parameters: Iterable[Any]) -> list[Any]:
    """Add parameters to a new graph, once each.

    Without True, DyNet would treat a parameter as a constant and compute no gradient.
    """
    return [p.expr(True) for p in parameters]


def classify_states(weights: Any, states: Sequence[Any], labels: Sequence[int]) -> GraphSegment:
    """Return loss and scores of all states, in their order.

    The classifier is one call over the mini-batch, as in most systems. In DyNet this takes three
    lines, and it is faster.
    """
    logits = weights.expr(True) * dy.concatenate_to_batch(list(states))
    return GraphSegment(dy.sum_batches(dy.pickneglogsoftmax_batch(logits, list(labels))), [logits])


class FusedGates:
    """DyNet's operator for i, f, o and g together, from W x + U h + b.

    Args:
        order: gates in the order of the shared columns, such as "fiog"; an absent gate gets zeros
            as weights.
    """

    def __init__(self, store: ParameterStore, suffix: str, order: str) -> None:
        self._matrices = [store.add_lstm_gates(f"{letter}{suffix}", order) for letter in "WU"]
        self._biases = dict(zip(order, store.add_vectors(f"b{suffix}", len(order)), strict=True))

    def begin(self) -> tuple[Any, Any, Any]:
        """Add the parameters to a new graph, and return W, U and b in the operator's form."""
        W, U = add_to_graph(self._matrices)
        of_gates = {gate: b.expr(True) for gate, b in self._biases.items()}
        # The operator adds 1 to f, which the biases already include.
        of_gates["f"] = of_gates["f"] - 1.0
        for gate in "ifog":
            if gate not in of_gates:
                of_gates[gate] = dy.zeros(of_gates["f"].dim()[0])
        b = dy.concatenate([of_gates[gate] for gate in "ifog"])
        # DyNet adds the gradient of an operand that all nodes of a batch share at the first row of
        # the batch that computed it. reshape is never batched, so that this is the right row.
        self._weights = W, U, dy.reshape(b, b.dim()[0])
        return self._weights

    def __call__(self, x: Any, h: Any) -> Any:
        """Return the activated gates i, f, o and g, concatenated."""
        return dy.vanilla_lstm_gates(x, h, *self._weights)


class HoistedGates:
    """Separate gates, each W x + b plus U h: DyNet batches W x + b over all inputs in advance."""

    def __init__(self, store: ParameterStore, suffix: str, n: int) -> None:
        self._parameters = [
            store.add_vectors(f"b{suffix}", n),
            store.add_matrices(f"W{suffix}", n),
            store.add_matrices(f"U{suffix}", n),
        ]

    def begin(self) -> None:
        groups = [[p.expr(True) for p in group] for group in self._parameters]
        self._weights = list(zip(*groups, strict=True))

    def transform_input(self, k: int, x: Any) -> Any:
        """Return W x + b of the k-th gate."""
        b, W, _ = self._weights[k]
        return dy.affine_transform([b, W, x])

    def transform_state(self, k: int, h: Any) -> Any:
        """Return U h of the k-th gate."""
        return self._weights[k][2] * h

    def __call__(self, k: int, x: Any, h: Any) -> Any:
        """Return the k-th gate before its activation."""
        b, W, U = self._weights[k]
        return dy.affine_transform([b, W, x]) + U * h


def run_together(programs: Iterable[Program[R]]) -> Generator[Needed, None, list[R]]:
    """Run all programs to their next use of a value, repeatedly, and return their results.

    If a program read its value by itself, DyNet would evaluate only its part of the graph and could
    batch only one instance.
    """
    going = list(enumerate(programs))
    results: dict[int, R] = {}
    numbers: Iterator[Any] = iter([None] * len(going))
    while going:
        waiting, needed = [], []
        for (index, program), number in zip(going, numbers, strict=True):
            try:
                needed.append(program.send(number))
                waiting.append((index, program))
            except StopIteration as ended:
                results[index] = ended.value
        going = waiting
        numbers = iter((yield from evaluate_first_numbers(needed)) if needed else [])
    return [results[index] for index in range(len(results))]


def evaluate_first_numbers(vectors: Sequence[Any]) -> Generator[Needed, None, list[float]]:
    """Evaluate all expressions built so far, and return the first number of each vector.

    All are read with one call: DyNet copies a vector number by number, 64 vectors of 256 in 0.3 ms.
    """
    firsts = dy.pick(dy.concatenate_to_batch(list(vectors)), 0)
    yield Needed(firsts)
    values: list[float] = firsts.npvalue().reshape(-1).tolist()
    return values
