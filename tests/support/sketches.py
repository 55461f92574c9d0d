"""Instances written as typed graphs, because a Tree has only leaves and pairs of children."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dynbatch.harness.values.graph import Graph, MiniBatch


@dataclass(frozen=True)
class Sketch:
    """One instance: for every vertex the name of its type, and its arguments (earlier vertices)."""

    vertices: Sequence[tuple[str, Sequence[int]]]
    read: Sequence[int] = ()  # vertices that the output function reads; all vertices if empty

    @property
    def n_vertices(self) -> int:
        return len(self.vertices)


def join_sketches(
    instances: Sequence[Sketch], vertex_types: Sequence[str], n_classes: int, vocab_size: int
) -> MiniBatch:
    """Join sketches into one mini-batch; words and labels follow from a vertex's position."""
    names = ("unbatchable", *vertex_types)
    types: list[int] = []
    args: list[list[int]] = []
    read: list[int] = []
    for sketch in instances:
        base = len(types)
        types += [names.index(name) for name, _ in sketch.vertices]
        args += [[base + a for a in own] for _, own in sketch.vertices]
        read += [base + v for v in (sketch.read or range(sketch.n_vertices))]
    position = np.concatenate([np.arange(s.n_vertices) for s in instances])
    return MiniBatch(
        graph=Graph(
            types=np.array(types, dtype=np.int32),
            arg_start=np.cumsum([0, *map(len, args)], dtype=np.int32),
            args=np.array([a for own in args for a in own], dtype=np.int32),
            type_names=names,
        ),
        pulls={
            "word": ((3 * position + 1) % vocab_size).astype(np.int32),
            "tag": ((position // 2) % vocab_size).astype(np.int32),
            "label": ((2 * position + 1) % n_classes).astype(np.int32),
        },
        outputs=np.array(read, dtype=np.int32),
        n_instances=len(instances),
    )


def some_forests() -> list[Sketch]:
    """Draw vertices with none to four children, some of which have several parents."""
    draw = random.Random(3)
    sizes = [draw.randint(1, 14) for _ in range(9)]
    return [
        Sketch([("vertex", draw.sample(range(k), draw.randint(0, min(k, 4)))) for k in range(n)])
        for n in sizes
    ]
