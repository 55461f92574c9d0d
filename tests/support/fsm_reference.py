"""ED-Batch's Q-learning in plain Python, implemented from its definitions.

Source: Chen et al., ICML 2023, Sec. 2.2 and 2.3, and their release, dynet/ooc-scheduler.cc.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE, Graph

MASK = 2**64 - 1
State = tuple[int, ...]


class Generator:
    """splitmix64 with 64-bit wrap-around."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def unit(self) -> float:
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        x = self.state
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
        x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
        return ((x ^ x >> 31) >> 11) / 2.0**53


@dataclass
class Remaining:
    """Vertices of a graph that remain during scheduling."""

    graph: Graph
    executed: set[int] = field(default_factory=set)
    n_batches: int = 0

    def __post_init__(self) -> None:
        graph = self.graph
        self.args = [set(graph.select_args(v).tolist()) for v in range(graph.n_vertices)]
        self.above: list[set[int]] = []
        for args in self.args:
            self.above.append(args.union(*(self.above[a] for a in args)))

    def left(self) -> list[int]:
        return [v for v in range(self.graph.n_vertices) if v not in self.executed]

    def ready(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for v in self.left():
            if self.args[v] <= self.executed:
                found.setdefault(int(self.graph.types[v]), []).append(v)
        return found

    def state(self, encoding: str) -> State:
        ready = self.ready()
        types = sorted(ready)
        if encoding == "sort":
            types.sort(key=lambda t: -len(ready[t]))
        if encoding == "max":
            types.append(max(types, key=lambda t: len(ready[t])))
        return tuple(types)

    def reward(self, t: int) -> Fraction:
        members = {v for v in self.left() if self.graph.types[v] == t}
        n_frontier = sum(not self.above[v] & members for v in members)
        return Fraction(len(self.ready()[t]), n_frontier) - 1

    def commit(self, t: int) -> None:
        self.executed |= set(self.ready()[t])
        self.n_batches += 1
        for follower, led in enumerate(self.graph.follows.tolist()):
            if led == t and follower in self.ready():
                self.commit(follower)

    def skip_unbatchable(self) -> bool:
        """Execute all unbatchable vertices, and return whether a decision remains."""
        while UNBATCHABLE in self.ready():
            self.executed.add(self.ready()[UNBATCHABLE][0])
            self.n_batches += 1
        assert all(self.graph.follows[t] == NO_TYPE for t in self.ready())
        return bool(self.left())


class Learner:
    """Learner of one encoding and variant; learn() returns choices, batches and trials."""

    def __init__(self, graph: Graph, encoding: str, variant: str, seed: int) -> None:
        self.graph, self.encoding, self.variant = graph, encoding, variant
        self.generator = Generator(seed)
        self.values: dict[State, dict[int, float]] = {}

    def best(self, state: State) -> int:
        actions = self.values[state]
        return max(reversed(actions), key=lambda t: actions[t])

    def trial(self, epsilon: float) -> None:
        remaining, visits = Remaining(self.graph), []
        while remaining.skip_unbatchable():
            state = remaining.state(self.encoding)
            self.values.setdefault(state, dict.fromkeys(state, 0.0))
            if self.generator.unit() < epsilon:
                t = state[int(self.generator.unit() * len(state))]
            else:
                t = self.best(state)
            visits.append((state, t, float(remaining.reward(t))))
            remaining.commit(t)
        for i, (state, t, _) in enumerate(visits):
            later = visits[i + 10 : i + 11]
            gain = max(self.values[later[0][0]].values()) if later else 0.0
            gain = max(0.0, gain) if self.variant == "released" else gain
            gain += sum(reward for _, _, reward in visits[i : i + 10])
            self.values[state][t] += 0.4 * (gain - self.values[state][t])

    def roll_out(self) -> int:
        remaining = Remaining(self.graph)
        while remaining.skip_unbatchable():
            state = remaining.state(self.encoding)
            remaining.commit(self.best(state) if state in self.values else state[-1])
        return remaining.n_batches

    def learn(self, trials: int, bound: int) -> tuple[dict[State, int], int, int]:
        epsilon, best = 0.5, None
        for n_trials in range(1, trials + 1):
            self.trial(epsilon)
            epsilon = max(0.05, 0.9 * epsilon)
            if n_trials % 50 == 0 or n_trials == trials:
                n_batches = self.roll_out()
                if best is None or n_batches < best[1]:
                    best = {state: self.best(state) for state in self.values}, n_batches
                if best[1] < 1.01 * bound:
                    break
        assert best is not None
        return *best, n_trials
