"""Pairwise testing: few combinations of option values with every pair of two options' values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

Chosen = dict[str, Any]


def pairwise_choices(values: Mapping[str, Sequence[Any]]) -> list[Chosen]:
    """Choose combinations greedily: each option gets the value that covers most new pairs."""
    left = {
        ((a, x), (b, y))
        for a, b in combinations(values, 2)
        for x, y in product(values[a], values[b])
    }
    found = []
    while left:
        (a, x), (b, y) = min(left, key=repr)
        chosen: Chosen = {a: x, b: y}
        for name in values:
            if name not in chosen:
                tried = [{**chosen, name: value} for value in values[name]]
                gains = [sum(_is_in(pair, one) for pair in left) for one in tried]
                chosen[name] = values[name][gains.index(max(gains))]
        found.append({name: chosen[name] for name in values})
        left -= {pair for pair in left if _is_in(pair, chosen)}
    return found


def _is_in(pair: Any, chosen: Chosen) -> bool:
    return all(name in chosen and chosen[name] == value for name, value in pair)
