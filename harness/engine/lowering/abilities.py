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
    narrows: such a kernel's columns may be those of one of several joined gates
    (harness.engine.lowering.narrowing).
    gives_back_parts: gradients that are given back to a child may be several values, which whoever
    takes them adds up.
    largest_in_place: elements of the largest parameter by which children's matrices are multiplied
    where these lie, one vertex after the other; 0: such matrices are gathered.
    reuses_places: a result may take the place of an operand that dies
    (harness.engine.lowering.reuse); not where kernels of other columns still read it.
    """

    operators: frozenset[str]
    fuses: bool = False
    reads_children: bool = False
    adds_to_children: bool = False
    fuses_losses: bool = False
    narrows: bool = False
    gives_back_parts: bool = False
    largest_in_place: int = 0
    reuses_places: bool = True

    def __post_init__(self) -> None:
        if not self.fuses and any((self.reads_children, self.adds_to_children, self.fuses_losses)):
            raise ValueError("only fused kernels read children, add to them, or do losses")

    def without_fusion(self) -> Abilities:
        """What is left where every operator is a kernel of its own."""
        return Abilities(self.operators, reuses_places=self.reuses_places)
