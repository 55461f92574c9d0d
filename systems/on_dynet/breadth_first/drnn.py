"""DRNN in DyNet, breadth first: what ACRoBat's authors did by hand (MLSys 2024, Table 8)."""

from __future__ import annotations

from systems.on_dynet.models import drnn
from systems.on_dynet.models.drnn import Branch


class Network(drnn.Network):
    """The same parameters and equations; every node grows as soon as it can."""

    def taken(self, branches: list[Branch]) -> list[Branch]:
        """All of them."""
        found = branches.copy()
        branches.clear()
        return found
