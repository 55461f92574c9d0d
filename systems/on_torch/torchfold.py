"""The package torchfold: dynamic batching by depth on top of PyTorch, with autograd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from torch import Tensor

from harness.contracts.system import Clock, Counters
from harness.values.instances import Tree
from systems.on_torch.parts.folds import FoldedTrees, fold_trees, listed_trees
from systems.on_torch.runtime import TorchSystem


@dataclass(frozen=True, slots=True)
class FoldOptions:
    """share_equal_nodes: see systems.on_torch.parts.folds.fold_trees."""

    share_equal_nodes: bool = True


class Adapter(TorchSystem):
    """Adds a node for every vertex to a Fold (construct), which then runs level by level."""

    option_type = FoldOptions
    options: FoldOptions
    networks = "systems.on_torch.folded:FOLDED"
    phases = ("construct", "forward", "backward", "update")
    _folded: FoldedTrees | None = None  # of the last run

    def load(self, instances: Sequence[Tree]) -> None:
        """Take the next mini-batch, as Python numbers."""
        self._listed = listed_trees(instances, self._device)

    def _forward(self, clock: Clock) -> tuple[Tensor, Tensor]:
        share, cuda = self.options.share_equal_nodes, self._device.type == "cuda"
        self._folded = fold_trees(self._listed.trees, share=share, cuda=cuda)
        clock.mark("construct")
        loss_and_outputs: tuple[Tensor, Tensor] = self._net(self._folded, self._listed.labels)
        clock.mark("forward")
        return loss_and_outputs

    def counters(self) -> Counters:
        """Calls of a method of the module by torchfold."""
        return Counters(n_batches=self._folded.n_batches if self._folded else None)

    def in_force(self) -> dict[str, str]:
        """How many nodes of the last mini-batch were equal to others, and so not computed."""
        found = super().in_force()
        if self._folded is not None:
            n_computed, n_added = self._folded.n_computed, self._folded.fold.total_nodes
            found["nodes_computed"] = f"{n_computed} of {n_added}"
        return found

    def versions(self) -> dict[str, str]:
        """Those of torch, and torchfold's."""
        return super().versions() | {"torchfold": version("torchfold")}
