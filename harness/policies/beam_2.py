"""Beam of 2 states with the score of `critical_share`: what a better choice could still gain.

Beam search (Lowerre, "The HARPY speech recognition system", 1976), from the outputs back. States
are ranked by their batches beyond the lower bound, and by the scores that they passed over.
"""

from __future__ import annotations

from harness.graph import Graph
from harness.policies._beam import search
from harness.schedule import Schedule

WIDTH = 2


def schedule(graph: Graph) -> Schedule:
    """Place batches from the last to the first; never more of them than `critical_share`."""
    return search(graph, WIDTH)
