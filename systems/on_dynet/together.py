"""Programs of all instances, each as far as it gets without a value; then one round for all."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import dynet as dy

from systems.on_dynet.rounds import Needed

R = TypeVar("R")
Program = Generator[Any, float, R]  # yields the expression of which it needs a number


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
