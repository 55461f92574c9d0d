"""Row spaces: types that write the same states number their rows together."""

from __future__ import annotations

from collections.abc import Sequence


def space_of_type(states_of_type: Sequence[frozenset[str]]) -> list[int]:
    """Number the row spaces: types that write a common state share one (transitively)."""
    spaces: list[set[str]] = []
    for states in states_of_type:
        joined = set(states)
        for space in [space for space in spaces if space & states]:
            joined |= space
            spaces.remove(space)
        if joined:
            spaces.append(joined)
    nowhere = len(spaces)  # types that write no state are numbered apart
    return [
        next((k for k, space in enumerate(spaces) if space & states), nowhere)
        for states in states_of_type
    ]
