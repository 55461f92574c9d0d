"""What a DyNet program hands over to be evaluated: a round of a mini-batch, mostly the only one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Round(NamedTuple):
    """Expressions that are evaluated before any of the next round's are built.

    loss: the round's summed loss; once it is evaluated, the round is over. Scores are not read.
    outputs: vectors, or mini-batches of them, in the order of MiniBatch.outputs; of several rounds
    each has an entry for every instance, None where it has ended.
    """

    loss: Any
    outputs: Sequence[Any]


class Needed(NamedTuple):
    """The newest expression: with it all before it is evaluated, and the program reads its value.

    A round without loss and outputs, behind which values decide how a program goes on.
    """

    value: Any


Part = Round | Needed
