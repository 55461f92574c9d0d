"""A graph in the type ids of another graph of the same model.

Ids may follow the order of first appearance (the released graph's sums of n arguments do), so that
they differ between mini-batches, and one mini-batch may have types that another lacks. Names do
not: a learned machine reads every graph by the names of its types. Types of equal name (operators
on different parameters) are told apart by their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from harness.errors import ConfigError
from harness.values.arrays import IntArray, int_array
from harness.values.graph import NO_TYPE, Graph

TypedArrays = tuple[IntArray, IntArray, NDArray[np.bool_]]
Key = tuple[str, int]


def in_types_of(graph: Graph, names: Sequence[str], follows: Sequence[int]) -> TypedArrays:
    """Return types, follows and cheap flags of a graph in the ids of `names` (follows: theirs).

    Types of the graph that `names` lacks come behind them, in the graph's order.

    Raises ConfigError where the graph cannot be of the same model: types that lead or follow
    another are not the same, or no type is.
    """
    own = tuple(graph.follows.tolist())
    if graph.type_names == names and own == follows:
        return graph.types, graph.follows, graph.cheap
    _check_same_model(graph.type_names, own, names, follows)
    ids = {key: t for t, key in enumerate(_keys(names))}
    new = [ids.setdefault(key, len(ids)) for key in _keys(graph.type_names)]
    new_follows = np.array([*follows, *[NO_TYPE] * (len(ids) - len(names))], dtype=np.int32)
    cheap = np.zeros(len(ids), dtype=np.bool_)
    cheap[new] = graph.cheap
    cheap.setflags(write=False)
    return int_array(np.array(new, dtype=np.int32)[graph.types]), int_array(new_follows), cheap


def all_types(graphs: Sequence[Graph]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return names of the types of all graphs, the first graph's first, and what they follow."""
    keys = dict.fromkeys(key for graph in graphs for key in _keys(graph.type_names))
    more = [NO_TYPE] * (len(keys) - graphs[0].n_types)
    return tuple(name for name, _ in keys), (*graphs[0].follows.tolist(), *more)


def _keys(names: Sequence[str]) -> list[Key]:
    """Return the names, each with how many equal ones come before it."""
    seen: Counter[str] = Counter()
    keys = []
    for name in names:
        keys.append((name, seen[name]))
        seen[name] += 1
    return keys


def _check_same_model(
    found: Sequence[str], found_follows: Sequence[int], names: Sequence[str], follows: Sequence[int]
) -> None:
    here, there = _leaders(found, found_follows), _leaders(names, follows)
    if here != there or not set(found[1:]) & set(names[1:]):
        raise ConfigError(
            f"a policy learned on types {', '.join(names[1:])} cannot schedule a graph of types"
            f" {', '.join(found[1:])}; learn one on this model"
        )


def _leaders(names: Sequence[str], follows: Sequence[int]) -> dict[str, str]:
    pairs = zip(names, follows, strict=True)
    return {name: names[leader] for name, leader in pairs if leader != NO_TYPE}
