"""Parts of models in DyNet: parameters in a graph, the classifier, LSTM gates, programs in step."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import dynet as dy

from systems.on_dynet.rounds import Needed, Round
from systems.on_dynet.runtime import ParameterStore

MOST_FUSED = 128  # hidden sizes up to which the operator of all gates is the faster way
R = TypeVar("R")
Program = Generator[Any, float, R]  # yields the expression of which it needs a number


def in_graph(parameters: Iterable[Any]) -> list[Any]:
    """Take parameters into a new graph, once each.

    Without True, DyNet would take a parameter for a constant, and give no gradient.
    """
    return [p.expr(True) for p in parameters]


def classified(weights: Any, states: Sequence[Any], labels: Sequence[int]) -> Round:
    """Loss and scores of all states, in their order.

    Most systems call the classifier once over the mini-batch, and so can DyNet's users, in three
    lines. It is the faster way (docs/systems.md).
    """
    logits = weights.expr(True) * dy.concatenate_to_batch(list(states))
    return Round(dy.sum_batches(dy.pickneglogsoftmax_batch(logits, list(labels))), [logits])


class FusedGates:
    """DyNet's operator for i, f, o and g together, from W x + U h + b.

    order: the shared columns' gates, such as "fiog"; one that it lacks gets weights of zero.
    """

    def __init__(self, store: ParameterStore, suffix: str, order: str) -> None:
        self._matrices = [store.lstm_gates(f"{letter}{suffix}", order) for letter in "WU"]
        self._biases = dict(zip(order, store.vectors(f"b{suffix}", len(order)), strict=True))

    def begin(self) -> tuple[Any, Any, Any]:
        """Take the parameters into a new graph: W, U and b as the operator wants them."""
        W, U = in_graph(self._matrices)
        of_gates = {gate: b.expr(True) for gate, b in self._biases.items()}
        nothing = dy.zeros(of_gates["f"].dim()[0])
        # The operator adds 1 to f, which our biases have in them already.
        of_gates["f"] = of_gates["f"] - 1.0
        b = dy.concatenate([of_gates.get(gate, nothing) for gate in "ifog"])
        # DyNet adds the gradient of what all nodes of a batch share at the start of the batch that
        # made it; reshape is never batched, so that this is its place.
        self._weights = W, U, dy.reshape(b, b.dim()[0])
        return self._weights

    def __call__(self, x: Any, h: Any) -> Any:
        """Gates side by side, activated: i, f, o, g."""
        return dy.vanilla_lstm_gates(x, h, *self._weights)


class HoistedGates:
    """Every gate by itself, W x + b apart from U h: DyNet batches it over all inputs beforehand."""

    def __init__(self, store: ParameterStore, suffix: str, n: int) -> None:
        self._parameters = [
            store.vectors(f"b{suffix}", n),
            store.matrices(f"W{suffix}", n),
            store.matrices(f"U{suffix}", n),
        ]

    def begin(self) -> None:
        """Take the parameters into a new graph."""
        groups = [[p.expr(True) for p in group] for group in self._parameters]
        self._weights = list(zip(*groups, strict=True))

    def inputs(self, k: int, x: Any) -> Any:
        """W x + b of the k-th gate."""
        b, W, _ = self._weights[k]
        return dy.affine_transform([b, W, x])

    def states(self, k: int, h: Any) -> Any:
        """U h of the k-th gate."""
        return self._weights[k][2] * h

    def __call__(self, k: int, x: Any, h: Any) -> Any:
        """The k-th gate, not activated."""
        b, W, U = self._weights[k]
        return dy.affine_transform([b, W, x]) + U * h


def together(programs: Iterable[Program[R]]) -> Generator[Needed, None, list[R]]:
    """Run every program to its next need of a value, again and again; what they return.

    A program that reads its own value by itself would evaluate its own part of the graph alone, so
    that DyNet had one instance to batch.
    """
    going = list(enumerate(programs))
    results: dict[int, R] = {}
    numbers: Iterator[Any] = iter([None] * len(going))
    while going:
        waiting, needed = [], []
        for (place, program), number in zip(going, numbers, strict=True):
            try:
                needed.append(program.send(number))
                waiting.append((place, program))
            except StopIteration as ended:
                results[place] = ended.value
        going = waiting
        numbers = iter((yield from first_numbers(needed)) if needed else [])
    return [results[place] for place in range(len(results))]


def first_numbers(vectors: Sequence[Any]) -> Generator[Needed, None, list[float]]:
    """Evaluate all that is built; the first number of each of these vectors.

    They are read at once: DyNet hands a vector out number by number, 64 of 256 in 0.3 ms.
    """
    firsts = dy.pick(dy.concatenate_to_batch(list(vectors)), 0)
    yield Needed(firsts)
    found: list[float] = firsts.npvalue().reshape(-1).tolist()
    return found
