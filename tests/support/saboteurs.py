"""Systems with one deliberate error each, selected by `system.options.sabotage`.

They compute with the reference, so that the deliberate error is their only one.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.system import Clock, Counters, Result, RunSettings
from dynbatch.harness.reference import ReferenceResult, run_reference
from dynbatch.systems.on_core.reference import Adapter as Reference

FEW = 4  # number of instances that the check runs


@dataclass(frozen=True, slots=True)
class SabotageOptions:
    sabotage: str = "Honest"  # name of the class in this module
    of: str = "W"  # parameter with the error
    precision: str = "ieee"  # of the trial, which is ignored


class Honest(Reference):
    phases = ("backward", "update")
    option_type = SabotageOptions
    options: SabotageOptions

    def run(self, clock: Clock, *, update: bool = True) -> None:
        self.found = self.compute(self._instances)
        clock.mark("backward" if self.trains else "forward")
        if self.trains and update:
            self.step(self.found.gradients)
            clock.mark("update")

    @property
    def trains(self) -> bool:
        return self.settings.mode == "train"

    def compute(self, instances: Sequence[Any]) -> ReferenceResult:
        return run_reference(self._model, self._weights, instances, self.settings.mode)

    def step(self, gradients: Mapping[str, NDArray[Any]]) -> None:
        for name, gradient in gradients.items():
            self._weights[name] -= self.settings.learning_rate * gradient

    def result(self) -> Result:
        return Result(self.found.loss, self.found.outputs, self.found.gradients, Counters())


class SkipsAnUpdate(Honest):
    def step(self, gradients: Mapping[str, NDArray[Any]]) -> None:
        super().step({k: v for k, v in gradients.items() if k != self.options.of})


class StepsTooFar(Honest):
    def step(self, gradients: Mapping[str, NDArray[Any]]) -> None:
        super().step({k: 1.02 * v for k, v in gradients.items()})


class SumsHalfAGradient(Honest):
    def compute(self, instances: Sequence[Any]) -> ReferenceResult:
        half = super().compute(instances[: len(instances) // 2])
        of = self.options.of
        found = super().compute(instances)
        return with_gradient(found, of, half.gradients[of]) if self.trains else found


class SumsHalfAGradientOfMany(SumsHalfAGradient):
    def compute(self, instances: Sequence[Any]) -> ReferenceResult:
        kind = SumsHalfAGradient if len(instances) > FEW else Honest
        return kind.compute(self, instances)


class TakesOneVertexForAnother(Honest):
    """System that reads a wrong word, as if one vertex had been dropped."""

    def compute(self, instances: Sequence[Any]) -> ReferenceResult:
        return super().compute([*instances[:-1], self.damaged(instances[-1])])

    @staticmethod
    def damaged(tree: Any) -> Any:
        leaves = np.flatnonzero(tree.left < 0)
        words = tree.words.copy()
        words[leaves[-1]] = (words[leaves[-1]] + 1) % len(leaves)
        return replace(tree, words=words)


class TakesOneVertexOfManyForAnother(TakesOneVertexForAnother):
    def compute(self, instances: Sequence[Any]) -> ReferenceResult:
        kind = TakesOneVertexForAnother if len(instances) > FEW else Honest
        return kind.compute(self, instances)


class ReusesTheLastResult(Honest):
    """System that reuses its last result in timed passes, in which the garbage collector is off."""

    def run(self, clock: Clock, *, update: bool = True) -> None:
        if gc.isenabled():
            super().run(clock, update=update)
        else:
            clock.mark("backward" if self.trains else "forward")


class ComputesInHalfPrecision(Honest):
    """System that rounds only parameters and results, to float16 or with `of=bfloat16`."""

    def compute(self, instances: Sequence[Any]) -> ReferenceResult:
        weights = {name: self.rounded(value) for name, value in self._weights.items()}
        found = run_reference(self._model, weights, instances, self.settings.mode)
        gradients = {name: self.rounded(value) for name, value in found.gradients.items()}
        return ReferenceResult(found.loss, self.rounded(found.outputs), gradients)

    def rounded(self, values: NDArray[Any]) -> NDArray[np.float64]:
        if self.options.of == "float16":
            return values.astype(np.float16).astype(np.float64)
        bits = values.astype(np.float32).view(np.uint32)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
        return nearest.astype(np.uint32).view(np.float32).astype(np.float64)


class KeepsAnswers(Honest):
    """System that computes each mini-batch once, and recognizes it by its instances."""

    def prepare(self, model: Model, weights: Weights) -> None:
        super().prepare(model, weights)
        self.answers: dict[tuple[int, ...], ReferenceResult] = {}

    def compute(self, instances: Sequence[Any]) -> ReferenceResult:
        key = tuple(map(id, instances))
        if key not in self.answers:
            self.answers[key] = super().compute(instances)
        return self.answers[key]


class KnowsTheCheckAlone(Honest):
    """System that is correct for few instances, and otherwise returns its last result."""

    def compute(self, instances: Sequence[Any]) -> ReferenceResult:
        if len(instances) <= FEW:
            self.last = super().compute(instances)
        return self.last


class WrongForMany(Honest):
    """System with an error of one thousandth in one gradient, for many instances."""

    def compute(self, instances: Sequence[Any]) -> ReferenceResult:
        found = super().compute(instances)
        of = self.options.of
        is_wrong = self.trains and self.is_wrong(instances)
        return with_gradient(found, of, 1.001 * found.gradients[of]) if is_wrong else found

    def is_wrong(self, instances: Sequence[Any]) -> bool:
        return len(instances) > FEW


class WrongForTheSecond(WrongForMany):
    """System with an error of one thousandth in one gradient, except in the first mini-batch."""

    def is_wrong(self, instances: Sequence[Any]) -> bool:
        self.first = getattr(self, "first", [])
        self.first = self.first or [id(one) for one in instances]  # the first instances of all
        return id(instances[0]) not in self.first and len(instances) > FEW


class WrongWithAClock(Honest):
    """System that is wrong only if its marks are read."""

    def run(self, clock: Clock, *, update: bool = True) -> None:
        self.is_timed = type(clock).__name__ != "NullClock"
        super().run(clock, update=update)

    def compute(self, instances: Sequence[Any]) -> ReferenceResult:
        found = super().compute(instances)
        return replace(found, loss=2 * found.loss) if self.is_timed else found


class WorksInLoad(Honest):
    def load(self, instances: Sequence[Any]) -> None:
        super().load(instances)
        self.found = self.compute(instances)

    def run(self, clock: Clock, *, update: bool = True) -> None:
        if self.trains and update:
            self.step(self.found.gradients)
        clock.mark("update" if self.trains else "forward")


class WorksInSynchronize(WorksInLoad):
    """System that computes in the first `synchronize` after `load`."""

    waits = False

    def load(self, instances: Sequence[Any]) -> None:
        self._instances, self.waits = instances, True

    def synchronize(self) -> None:
        if self.waits:
            self.found = self.compute(self._instances)
            self.waits = False

    def run(self, clock: Clock, *, update: bool = True) -> None:
        self.synchronize()  # if it was not called before
        super().run(clock, update=update)


class WorksWhenAsked(Honest):
    """System that computes when its result is requested."""

    def run(self, clock: Clock, *, update: bool = True) -> None:
        self.is_asked = False
        clock.mark("forward")

    def result(self) -> Result:
        if not self.is_asked:
            self.found = self.compute(self._instances)
            self.is_asked = True
        return super().result()


class UpdatesAlways(Honest):
    def run(self, clock: Clock, *, update: bool = True) -> None:
        super().run(clock, update=True)


class UpdatesALittle(Honest):
    """System that makes a tiny update if none is requested, too small to show in results."""

    def run(self, clock: Clock, *, update: bool = True) -> None:
        super().run(clock, update=update)
        if not update:
            self.step({name: 1e-6 * g for name, g in self.found.gradients.items()})


def with_gradient(found: ReferenceResult, name: str, value: NDArray[Any]) -> ReferenceResult:
    return replace(found, gradients={**found.gradients, name: value})


class Adapter(Honest):
    """System that the options select."""

    def __new__(cls, settings: RunSettings) -> Any:
        kind = globals()[cls.options_of(settings).sabotage]
        return kind(settings)
