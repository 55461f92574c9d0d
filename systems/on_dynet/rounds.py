"""One pass over a mini-batch in DyNet, and what a program hands over to be evaluated in it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from harness.contracts.system import Clock, RunSettings, System
from systems.on_dynet.build import OUTGROWN


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


class DynetSystem(System):
    """fault: what is raised where DyNet says that its memory was too small, and has made more."""

    fault: ClassVar[type[Exception]]

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self._gradients_pending = False

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Build the graph, then let DyNet batch and run it."""
        try:
            self._step(clock, update)
        except self.fault as error:
            if OUTGROWN not in str(error):
                raise
            self._gradients_pending = True
            self.run(clock, update=update)

    def _step(self, clock: Clock, update: bool) -> None:
        if self._gradients_pending:  # DyNet adds gradients up until an update has used them
            self._clear_gradients()
            self._gradients_pending = False
        self._evaluate(clock)
        if self.settings.mode != "train":
            return
        self._gradients_pending = True
        self._backward()
        clock.mark("backward")
        if update:
            self._update()
            self._gradients_pending = False
            clock.mark("update")

    @abstractmethod
    def _clear_gradients(self) -> None:
        """Set all gradients to zero."""

    @abstractmethod
    def _evaluate(self, clock: Clock) -> None:
        """Build the graph and compute its loss, marking both."""

    @abstractmethod
    def _backward(self) -> None:
        """Compute all gradients."""

    @abstractmethod
    def _update(self) -> None:
        """One step, which uses the gradients up."""
