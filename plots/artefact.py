"""One artefact ready to be drawn: its points, and the published numbers beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.record import Record
from plots.points import Measured, Point, measure_of, speedup_of
from plots.presentation import Presentation

SPEEDUP = "_speedup"
SPEEDUP_OF = {"computation_speedup": "computation_s", "overall_speedup": "epoch_s"}


@dataclass(frozen=True, slots=True)
class Artefact:
    """Points of one grid at one scale; labels: how a system is called in print."""

    presentation: Presentation
    scale: str
    points: tuple[Point, ...]
    labels: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.presentation.name

    @property
    def records(self) -> tuple[Record, ...]:
        """All records that were found, in the order of the grid."""
        return tuple(r for point in self.points for r in point.records if r is not None)

    @property
    def xs(self) -> tuple[float, ...]:
        """Every x of the grid, ascending."""
        return tuple(sorted({self.x_of(point) for point in self.points}))

    def x_of(self, point: Point) -> float:
        return float(point.settings[self.presentation.axis])

    def find(self, system: str, x: float) -> Point | None:
        """The point of a system at x, or None where the grid has none."""
        for point in self.points:
            if point.settings["system"] == system and self.x_of(point) == x:
                return point
        return None

    def measured(self, quantity: str, system: str, x: float, base: str = "") -> Measured:
        """A quantity of a system; a speed-up is the base's over that system."""
        n_instances = self.presentation.epoch_n_instances
        point = self.find(system, x)
        if quantity.endswith(SPEEDUP):
            whole = SPEEDUP_OF[quantity]
            return speedup_of(point, self.find(base, x), whole, n_instances)
        return measure_of(point, quantity, n_instances)

    def label(self, system: str) -> str:
        return self.labels.get(system, system)
