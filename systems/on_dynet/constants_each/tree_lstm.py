"""Tree-LSTM in DyNet as ACRoBat's authors first had it: a constant zero at every leaf.

Fegade et al., MLSys 2024, Table 8, whose first patch makes the constant once. A leaf's children
have no state here, and what is added changes no number.
"""

from __future__ import annotations

from systems.on_dynet.models import tree_lstm


class Network(tree_lstm.Network):
    """The same parameters and equations; a leaf's cell begins with a zero of its own."""

    zeros_at_leaves = True


NETWORKS = {"tree_lstm": Network}
