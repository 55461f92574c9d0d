"""Graphs of ED-Batch's released lattices, read and built independently as in its release."""

from __future__ import annotations

from pathlib import Path

from harness.values.graph import NO_TYPE, Graph
from tests.support.random_graphs import graph_of

Lattice = list[list[int]]  # source states of the arcs into each state


def read_lattices(file: Path, n: int) -> list[Lattice]:
    numbers = iter([int(word) for word in file.read_text().split()][1:])
    lattices = []
    for _ in range(n):
        n_states = next(numbers)
        for _ in range(n_states):
            next(numbers)  # tag
        lattice = []
        for _ in range(n_states):
            arcs = [(next(numbers), next(numbers)) for _ in range(next(numbers))]
            lattice.append([source for source, _ in arcs])
        lattices.append(lattice)
    return lattices


class Building:
    """Graph under construction; types are numbered by first use, blocks before all others."""

    def __init__(self, states: str) -> None:
        self.states = states
        self.types: list[int] = []
        self.args: list[list[int]] = []
        self.follows = [NO_TYPE]
        self.names = {"parameter": 0}
        for block in ("character", "word"):
            leader = self.type_of(block)
            for state in states:
                self.type_of(block + state, leader)

    def type_of(self, name: str, follows: int = NO_TYPE) -> int:
        if name not in self.names:
            self.names[name] = len(self.names)
            self.follows.append(follows)
        return self.names[name]

    def add(self, name: str, *args: int) -> int:
        self.types.append(self.type_of(name))
        self.args.append(list(args))
        return len(self.types) - 1

    def state(self, index: int, sources: list[int], before: list[list[int]]) -> list[int]:
        """Add one cell per incoming arc, and plain sums if there are several."""
        cells = []
        for source in sources:
            name = "character" if source == index - 1 else "word"
            block = self.add(name, *before[source])
            cells.append([self.add(name + state, block) for state in self.states])
        if len(cells) == 1:
            return cells[0]
        return [self.add(f"sum of {len(cells)}", *parts) for parts in zip(*cells, strict=True)]


def lattice_graph(lattices: list[Lattice], states: str) -> Graph:
    building = Building(states)
    weights, *initial = (building.add("parameter") for _ in range(3))
    losses = []
    for lattice in lattices:
        before: list[list[int]] = []
        for index, sources in enumerate(lattice):
            start = initial[: len(states)]
            before.append(building.state(index, sources, before) if sources else start)
            logits = building.add("matmul", weights, before[-1][0])
            losses.append(building.add("loss", logits))
    building.add("reduce", *losses)
    return graph_of(building.types, building.args, follows=building.follows)
