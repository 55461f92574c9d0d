"""What becomes of every value of a program: who reads it, in which stage and in which kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.engine.lowering.abilities import Abilities
from harness.engine.lowering.absorption import Absorption, find_consumers
from harness.engine.lowering.losses import Losses
from harness.engine.lowering.results import Results
from harness.vertex.operators import OPERATORS, Node

Target = tuple[str, int | None]  # state of children, and which child (None: one row an edge)
FusedAdds = Mapping[int, tuple[Target, ...]]


@dataclass(frozen=True, slots=True)
class Uses:
    """Of every value of one program, by node.

    stage_of: where it is computed; sources and slices are not. group_of: the nodes that are
    computed in one kernel with it. consumers: nodes that read it.
    fused_adds: what its kernel adds it to on the spot. given_back: gradients of children that a
    step of their own adds. kept: values that are read where they lie after their stage's operators:
    shown, scattered or given back. losses: those that one kernel does with their gradients.
    """

    nodes: tuple[Node, ...]
    results: Results
    abilities: Abilities
    absorption: Absorption
    stage_of: Mapping[int, str]
    group_of: Mapping[int, tuple[int, ...]]
    consumers: Sequence[Sequence[int]]
    fused_adds: FusedAdds
    given_back: frozenset[int]
    kept: frozenset[int]
    losses: Losses

    def is_slice(self, i: int) -> bool:
        """Whether a value is columns of another."""
        return self.nodes[i].op == "slice"

    def is_elementwise(self, i: int) -> bool:
        """Whether a value is computed position by position."""
        return OPERATORS[self.nodes[i].op].elementwise

    def root(self, i: int) -> int:
        """The node that computes the value of which i is columns."""
        while self.is_slice(i):
            i = self.nodes[i].inputs[0]
        return i

    def is_stored(self, i: int) -> bool:
        """Whether a computed value needs a place: neither summed up nor left in a register."""
        if OPERATORS[self.nodes[i].op].sink or i in self.absorption.into:
            return False
        if i in self.unneeded:
            return False
        if not self.abilities.fuses or not self.is_elementwise(i):
            return True
        if i in self.results.shown or i in self.given_back:
            return True
        return any(k not in self.group_of[i] for k in self.consumers[i])

    @property
    def unneeded(self) -> frozenset[int]:
        """What only gradients read that a loss's kernel computes without it."""
        read = (k for i in self.losses.gradients for k in self.nodes[i].inputs)
        only = (k for k in read if all(r in self.losses.gradients for r in self.consumers[k]))
        return frozenset(k for k in only if k in self.stage_of and k not in self.kept)

    def added_on_the_spot(self, group: tuple[int, ...]) -> tuple[tuple[int, str, int | None], ...]:
        """Results of a fused group that are added to children's gradients by its kernel."""
        return tuple((i, *target) for i in group for target in self.fused_adds.get(i, ()))


def find_uses(
    nodes: tuple[Node, ...],
    results: Results,
    stage_of: Mapping[int, str],
    groups: Sequence[tuple[int, ...]],
    absorption: Absorption,
    abilities: Abilities,
    losses: Losses,
) -> Uses:
    """Uses of all values; groups: of all stages, groups of one where a kernel is one operator."""
    fused_adds = _find_fused_adds(nodes, results, stage_of, absorption, abilities)
    given_back = results.given_back.difference(fused_adds)
    return Uses(
        nodes=nodes,
        results=results,
        abilities=abilities,
        absorption=absorption,
        stage_of=stage_of,
        group_of={i: group for group in groups for i in group},
        consumers=find_consumers(nodes, {*stage_of, *results.all}),
        fused_adds=fused_adds,
        given_back=given_back,
        kept=results.scattered | results.shown | given_back,
        losses=losses,
    )


def _find_fused_adds(
    nodes: Sequence[Node],
    results: Results,
    stage_of: Mapping[int, str],
    absorption: Absorption,
    abilities: Abilities,
) -> FusedAdds:
    """Gradients of children that the kernels which compute them add on the spot."""
    found: dict[int, tuple[Target, ...]] = {}
    if not abilities.adds_to_children:
        return found
    for source, i in results.gradients:
        fusible = OPERATORS[nodes[i].op].elementwise and i not in absorption.merged
        if fusible and i in stage_of:
            gather = nodes[source]
            slot = gather.index if gather.op == "gather" else None
            found[i] = (*found.get(i, ()), (gather.name, slot))
    return found
