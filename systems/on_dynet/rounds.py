"""What a DyNet program hands over to be evaluated: a round of a mini-batch, mostly the only one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Round(NamedTuple):
    """Expressions that are evaluated before any of the next round's are built.

    loss: the round's summed loss; once it is evaluated, the round is over. Scores are not read.
    outputs: vectors, or mini-batches of them, in the order of MiniBatch.outputs; of several rounds
    each has an entry for every instance, None where it has ended, or a list of several.
    """

    loss: Any
    outputs: Sequence[Any]
