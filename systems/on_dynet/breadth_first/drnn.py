"""DRNN in DyNet, breadth first: what ACRoBat's authors did by hand (MLSys 2024, Table 8)."""

from __future__ import annotations

from systems.on_dynet.models import drnn
from systems.plans.programs import GrownTree


class Network(drnn.Network):
    """The same parameters and equations; every node grows as soon as it can."""

    def growing(self, tree: GrownTree) -> list[list[int]]:
        """All whose parents and siblings are there."""
        return tree.waves()


NETWORKS = {"drnn": Network}
