"""Critical share in plain Python, as docs/critical_share.md defines it: slow, and the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dynbatch.harness.policies.parts.urgency import (
    COST,
    MAX_WAIT,
    OTHERS,
    OWN,
    PROGRESS,
    READY,
    WAIT,
)
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE, Graph

N_WEIGHED = 4  # number of highest levels with a nonzero weight
Places = list[int]


@dataclass(frozen=True)
class _Plain:
    """Vertices without blocks.

    Attributes:
        types: (n,), type of each vertex.
        args: arguments of each vertex.
        cost: cost of each type.
    """

    types: list[int]
    args: list[list[int]]
    cost: list[float]


def plain_batches(graph: Graph) -> list[list[int]]:
    """Return the vertices of every batch, in increasing order."""
    types = graph.types.tolist()
    args = [graph.select_args(v).tolist() for v in range(len(types))]
    follows = graph.follows.tolist()
    block = [v if follows[t] == NO_TYPE else args[v][0] for v, t in enumerate(types)]
    blocks = [v for v in range(len(types)) if block[v] == v]
    number = {v: k for k, v in enumerate(blocks)}
    made = [
        1 + sum(led == t and f in types for f, led in enumerate(follows))
        for t in range(len(follows))
    ]
    plain = _Plain(
        [types[v] for v in blocks],
        [[number[block[a]] for a in args[v]] for v in blocks],
        [one / max(made, default=1) for one in made],
    )
    type_of, late = _latest(plain)
    early = _without_spare(plain, type_of, late)
    of_blocks = _better(plain, early, late, any(led != NO_TYPE for led in follows))
    keys = [
        (of_blocks[number[block[v]]], 0 if block[v] == v else 1, 0 if block[v] == v else t)
        for v, t in enumerate(types)
    ]
    return [[v for v in range(len(types)) if keys[v] == key] for key in sorted(set(keys))]


def _levels(plain: _Plain) -> tuple[list[int], list[dict[int, int]]]:
    """Return the chained types, and the level of every vertex on each of them."""
    present = sorted(set(plain.types) - {UNBATCHABLE})
    levels: list[dict[int, int]] = []
    for t, args in zip(plain.types, plain.args, strict=True):
        above = {k: max((levels[a][k] for a in args), default=0) for k in present}
        levels.append({k: level + (k == t) for k, level in above.items()})
    return [k for k in present if any(level[k] > 1 for level in levels)], levels


def _latest(plain: _Plain) -> tuple[list[int], Places]:
    """Return the type of every batch, and the latest possible batch of every vertex."""
    chained, levels = _levels(plain)
    n = len(plain.types)
    users = [sum(args.count(v) for args in plain.args) for v in range(n)]
    placed = [-1] * n
    chosen: list[int] = []
    arrived = [v for v in range(n) if users[v] == 0]  # in the order of becoming ready
    waits = dict.fromkeys(range(len(plain.cost)), -1)
    while arrived:
        ready: dict[int, list[int]] = {}
        for v in arrived:
            ready.setdefault(plain.types[v], []).append(v)
        if UNBATCHABLE in ready:
            t, members = UNBATCHABLE, ready[UNBATCHABLE][:1]
        else:
            waits = {k: waits[k] + 1 if k in ready else -1 for k in waits}
            reach = {
                t: {k: max(levels[v][k] for v in members) for k in chained}
                for t, members in ready.items()
            }
            left = {t: sum(plain.types[v] == t and placed[v] < 0 for v in range(n)) for t in ready}
            t = _choice(plain, ready, left, waits, chained, reach)
            members = ready[t]
            waits[t] = -1
        for v in members:
            placed[v] = len(chosen)
            arrived.remove(v)
        for v in members:
            for arg in plain.args[v]:
                users[arg] -= 1
                if users[arg] == 0:
                    arrived.append(arg)
        chosen.append(t)
    return chosen[::-1], [len(chosen) - 1 - b for b in placed]


def _choice(
    plain: _Plain,
    ready: dict[int, list[int]],
    left: dict[int, int],
    waits: dict[int, int],
    chained: Sequence[int],
    reach: dict[int, dict[int, int]],
) -> int:
    """Return a safe type, or else the smallest type with the highest score."""
    for t in sorted(ready):
        if len(ready[t]) == left[t]:
            return t
    for k in chained:
        if k in ready and all(reach[t][k] == 0 for t in ready if t != k):
            return k
    longest = {k: max(reach[t][k] for t in ready) for k in chained}
    held = {t: {k: _held(reach[t][k], longest[k]) for k in chained} for t in ready}
    worth = {k: plain.cost[k] / max(sum(held[t][k] for t in ready), 1) for k in chained}
    scores = {}
    for t in sorted(ready):
        cost = plain.cost[t]
        score = READY * (len(ready[t]) / left[t]) - COST * cost
        score += WAIT * min(waits[t], MAX_WAIT)
        others = 0.0
        for k in chained:
            if k != t:
                others += worth[k] * held[t][k]
                continue
            score += OWN * (worth[k] * held[t][k])
            if longest[k] > 0 and [s for s in ready if reach[s][k] == longest[k]] == [k]:
                score += PROGRESS * cost
        n_chains = sum(level > 0 for level in longest.values())
        scores[t] = score + OTHERS * others / max(n_chains, 1)
    return max(sorted(scores), key=lambda t: scores[t])


def _held(reached: int, longest: int) -> int:
    """Return the weight, in eighths of the longest chain's, of a type with this level."""
    below = longest - reached
    return 2 ** (N_WEIGHED - 1 - below) if reached > 0 and below < N_WEIGHED else 0


def _without_spare(plain: _Plain, type_of: list[int], late: Places) -> Places:
    """Move all vertices to early batches, and drop batches that no vertex is bound to."""
    every = set(range(len(type_of)))
    early = _earliest(plain, type_of, late, every)
    bound = {b for b, other in zip(early, late, strict=True) if b == other}
    if bound != every:
        early = _earliest(plain, type_of, late, bound)
    used = sorted(set(early))
    return [used.index(b) for b in early]


def _earliest(plain: _Plain, type_of: list[int], late: Places, kept: set[int]) -> Places:
    """Return the first usable batch after the arguments' for each vertex, else its latest one.

    Usable are the batches in `kept`, and latest ones of previous vertices.
    """
    kept, early = set(kept), []
    for v, t in enumerate(plain.types):
        first = max((early[a] + 1 for a in plain.args[v]), default=0)
        found = [b for b in sorted(kept) if first <= b <= late[v] and type_of[b] == t]
        early.append(found[0] if found and t != UNBATCHABLE else late[v])
        kept.add(early[v])
    return early


def _better(plain: _Plain, early: Places, late: Places, has_followers: bool) -> Places:
    """Return the early batches if they are fewer, or else if they read from fewer other batches."""
    if len(set(early)) < len(set(late)):
        return early
    if has_followers:
        return late
    return early if _n_sources(plain, early) < _n_sources(plain, late) else late


def _n_sources(plain: _Plain, place: Places) -> int:
    return len({(place[v], place[a]) for v, args in enumerate(plain.args) for a in args})
