"""Beam of 20 states with the score of `critical_share`: what a better choice could still gain.

Beam search (Lowerre, "The HARPY speech recognition system", 1976), from the outputs back. States
are ranked by their batches beyond the lower bound, and by the scores that they passed over.
"""

from __future__ import annotations

from harness.policies.critical_share import schedule as critical_share
from harness.policies.parts.beam import search
from harness.values.graph import Graph
from harness.values.schedule import Schedule

NOT_BY_AUTO = "it searches for longer than what it finds could save"
WIDTH = 20


def schedule(graph: Graph) -> Schedule:
    """Place batches from the last to the first; never more of them than `critical_share`."""
    return search(graph, WIDTH, critical_share(graph))
