"""Systems that a figure shows as one: variants of a system, of which the fastest counts.

conf/system/<name>.yaml says `variant_of`. Tables of peers have a row for each variant all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """One curve or column: `name` is what it is shown as, `members` those that it is chosen from.

    A system without a variant beside it is a family of its own.
    """

    name: str
    members: tuple[str, ...]


def families_of(systems: Sequence[str], variant_of: Mapping[str, str]) -> tuple[Family, ...]:
    """Group systems that stand beside each other, in their order.

    variant_of: a variant's name -> that of its head. A variant that stands alone keeps its name.
    """
    groups: dict[str, list[str]] = {}
    for system in systems:
        groups.setdefault(variant_of.get(system, system), []).append(system)
    return tuple(
        Family(head if len(members) > 1 else members[0], tuple(members))
        for head, members in groups.items()
    )
