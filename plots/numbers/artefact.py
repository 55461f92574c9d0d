"""One artefact ready to be drawn: its points and counts, and the published numbers beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.planning.claims import Claim
from harness.planning.sweep import Sweep
from harness.records.count_row import AnyCount, CountRow
from harness.records.record import Record
from harness.values.places import CONF_DIR
from plots.numbers.families import Family, families_of
from plots.numbers.points import Measured, Point, measure_of, speedup_of
from plots.numbers.presentation import Presentation

SPEEDUP = "_speedup"
SPEEDUP_OF = {"computation_speedup": "computation_s", "overall_speedup": "epoch_s"}


@dataclass(frozen=True, slots=True)
class Artefact:
    """Points and batch counts of one grid at one scale.

    labels: how a system or a model is called in print. counts: those that failed, too.
    variant_of: systems that are variants, each with the name of the one that it is a variant of.
    claims: of an artefact that answers claims, all of them.
    data_root, conf_dir: where data sets and YAML files lie. stand_ins: generated data sets that
        stand in for others, each with the kind of its instances.
    """

    presentation: Presentation
    scale: str
    points: tuple[Point, ...]
    labels: Mapping[str, str]
    sweeps: tuple[Sweep, ...] = ()
    counts: tuple[AnyCount, ...] = ()
    data_root: Path = Path("data")
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    conf_dir: Path = CONF_DIR
    variant_of: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()

    @property
    def name(self) -> str:
        return self.presentation.name

    @property
    def records(self) -> tuple[Record, ...]:
        """All records that were found, in the order of the grid, each once."""
        found = [r for point in self.points for r in point.records if r is not None]
        return tuple({(r.trial_id, r.trial.round): r for r in found}.values())

    @property
    def compare(self) -> Mapping[str, tuple[str, ...]]:
        """Per comparison its first system, and those others that the grid has at this scale."""
        has = {str(point.settings["system"]) for point in self.points}
        return {
            group: (base, *(system for system in others if system in has))
            for group, (base, *others) in self.presentation.compare.items()
        }

    def families(self, comparison: str) -> tuple[Family, ...]:
        """The systems of a comparison, variants as one; the first is the base."""
        return families_of(self.compare[comparison], self.variant_of)

    @property
    def datasets(self) -> tuple[str, ...]:
        """All data sets, sorted."""
        named = {str(point.settings["dataset"]) for point in self.points if point.settings}
        return tuple(sorted(named.union(*(sweep.values("dataset") for sweep in self.sweeps))))

    @property
    def splits(self) -> tuple[str, ...]:
        """All splits that trials name, sorted."""
        return tuple(
            sorted({str(p.settings["split"]) for p in self.points if "split" in p.settings})
        )

    def listed(self, key: str, default: str = "") -> tuple[str, ...]:
        """All values that the sweeps give a key, in their order."""
        return tuple(dict.fromkeys(v for s in self.sweeps for v in s.values(key, default)))

    @property
    def counted(self) -> tuple[CountRow, ...]:
        """The counts that did not fail."""
        return tuple(row for row in self.counts if isinstance(row, CountRow))

    def count(self, **wanted: object) -> AnyCount | None:
        """The first row whose fields are as wanted, or None where there is none."""
        for row in self.counts:
            if all(getattr(row, name) == value for name, value in wanted.items()):
                return row
        return None

    def counts_with(self, **wanted: object) -> list[AnyCount]:
        """All rows whose fields are as wanted: of a learned policy one for each seed."""
        rows = (r for r in self.counts if all(getattr(r, k) == v for k, v in wanted.items()))
        return list({row.count_id: row for row in rows}.values())

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

    def fastest(self, family: Family, x: float) -> str | None:
        """The member with most instances per second at x; without a number, the first of the grid.

        None where the grid has no member at x.
        """
        points = [(member, self.find(member, x)) for member in family.members]
        planned = [(member, point) for member, point in points if point is not None]
        speeds = {member: measure_of(point, "throughput").summary for member, point in planned}
        found = {member: speed.median for member, speed in speeds.items() if speed is not None}
        if not found:
            return planned[0][0] if planned else None
        return max(found, key=lambda member: found[member])

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
