"""What a backend's kernels can do: all that lowering may assume of the machine below it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Abilities:
    """Of one backend.

    operators: those of harness.vertex.operators that it runs.
    fuses: several elementwise operators become one kernel, whose values need no memory.
    reads_children: such a kernel reads children's states where they are, without a gather.
    adds_to_children: such a kernel adds gradients to children's where they are.
    fuses_losses: a softmax loss and its gradient are one kernel (harness.engine.lowering.losses).
    """

    operators: frozenset[str]
    fuses: bool = False
    reads_children: bool = False
    adds_to_children: bool = False
    fuses_losses: bool = False

    def __post_init__(self) -> None:
        if not self.fuses and any((self.reads_children, self.adds_to_children, self.fuses_losses)):
            raise ValueError("only fused kernels read children, add to them, or do losses")

    def without_fusion(self) -> Abilities:
        """What is left where every operator is a kernel of its own."""
        return Abilities(self.operators)
