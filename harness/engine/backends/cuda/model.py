"""All functions of a model as kinds: stage by stage, sums of gradients, and updates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.engine.backends.cuda.arrays import (
    CountOf,
    GradientOf,
    ParameterOf,
    Totals,
)
from harness.engine.backends.cuda.kinds import (
    CopyKind,
    Kind,
    StepKind,
    SumKind,
    TableStepKind,
    TotalKind,
)
from harness.engine.backends.cuda.places import Places
from harness.engine.backends.cuda.pulls import find_pulls
from harness.engine.backends.cuda.readers import Reader
from harness.engine.backends.cuda.stage import PlacedKind, Stage
from harness.engine.backends.cuda.stages import StageWriter
from harness.engine.backends.cuda.sums import sums_of_all, table_steps
from harness.engine.lowering.plan import STAGES, Plan
from harness.errors import UnsupportedTrial
from harness.vertex.subgraph.columns import Pack

FORWARD = ("eager", "batch", "lazy")
# Kernels: what one launch can run. Few kinds in each keep registers, and compiling, in bounds.
KERNELS = ("forward", "backward", "backward_lazy", "update")


@dataclass(frozen=True, slots=True)
class ModelKinds:
    """Kinds of all functions.

    stages: of every stage by function. totals: losses, of all that is run forward. sums: gradients
    over all rows, which wait for sums_after phases of their stage; those that add to what is there,
    one behind the other. added_to: parameters whose gradients have to be zero first. steps: phases
    of an update. readers: of all states.
    """

    stages: Mapping[str, Mapping[int, Sequence[PlacedKind]]]
    totals: tuple[TotalKind, ...]
    sums: tuple[SumKind, ...]
    sums_after: int
    added_to: frozenset[str]
    steps: tuple[tuple[Kind, ...], ...]
    readers: frozenset[Reader]

    def stages_of(self, kernel: str) -> Mapping[str, Mapping[int, Sequence[PlacedKind]]]:
        """The stages that one kernel runs."""
        names = FORWARD if kernel == "forward" else (kernel,)
        return {name: self.stages[name] for name in names if name in self.stages}

    def of_kernel(self, kernel: str) -> list[Kind]:
        """The kinds that one kernel runs; equal ones more than once."""
        if kernel == "update":
            return [kind for phase in self.steps for kind in phase]
        stages = self.stages_of(kernel).values()
        kinds = [one.kind for of_type in stages for found in of_type.values() for one in found]
        more: Mapping[str, Sequence[Kind]] = {"forward": self.totals, "backward_lazy": self.sums}
        return [*kinds, *more.get(kernel, ())]

    @property
    def summed(self) -> frozenset[str]:
        """Parameters with dense gradients."""
        batchwise = (one.kind for found in self.stages["backward"].values() for one in found)
        arrays = (kind.gradient for kind in (*self.sums, *batchwise) if isinstance(kind, SumKind))
        return frozenset(array.name for array in arrays if isinstance(array, GradientOf))


def kinds_of(
    plans: Mapping[int, Plan],
    shapes: Mapping[str, Sequence[int]],
    packs: Mapping[str, Pack],
    several: Collection[Reader],
    *,
    fuse: bool,
) -> ModelKinds:
    """Find the kinds of a model.

    shapes: of all parameters, packs among them. several: readers that read some state twice.
    """
    places = {type_id: Places(type_id, plan) for type_id, plan in plans.items()}
    pulls = find_pulls(places.values(), several, fuse=fuse)
    leading = {name: int(shape[-1]) for name, shape in shapes.items()}
    stages: dict[str, dict[int, list[PlacedKind]]] = {stage: {} for stage in STAGES}
    sums_after = 0
    for stage in STAGES:
        for type_id, mine in places.items():
            left_out = pulls.left_out[type_id] if stage == "backward" else frozenset[int]()
            writer = StageWriter(Stage(mine, stage, fuse), pulls.terms, left_out, leading)
            stages[stage][type_id] = writer.write()
            if stage == "backward_lazy":
                sums_after = max(sums_after, writer.sums_after)
    sums, added_to = sums_of_all(places.values())
    batchwise = [one.kind for found in stages["backward"].values() for one in found]
    added_to |= {
        kind.gradient.name
        for kind in batchwise
        if isinstance(kind, SumKind) and isinstance(kind.gradient, GradientOf)
    }
    totals = tuple(_totals(places.values()))
    kinds = ModelKinds(stages, totals, tuple(sums), sums_after, added_to, (), pulls.readers)
    tables = [step for mine in places.values() for step in table_steps(mine)]
    steps = _steps(sorted(kinds.summed), shapes, packs, tables)
    return replace(kinds, steps=steps)


def _totals(all_places: Iterable[Places]) -> Iterator[TotalKind]:
    """The loss of every function that has one."""
    having = [places for places in all_places if places.plan.loss is not None]
    for place, places in enumerate(having):
        assert places.plan.loss is not None
        columns = places.piece(places.plan.refs[places.plan.loss])
        if columns is None:
            raise UnsupportedTrial("a loss lies in several places")
        count = CountOf(places.type_id, of_edges=False)
        yield TotalKind(places.whole(columns), count, Totals(), place)


def _steps(
    summed: Sequence[str],
    shapes: Mapping[str, Sequence[int]],
    packs: Mapping[str, Pack],
    tables: Sequence[TableStepKind],
) -> tuple[tuple[Kind, ...], ...]:
    """Phases of an update: every phase changes an element once."""
    first: list[Kind] = []
    later: list[list[Kind]] = []
    for name in summed:
        shape = shapes[name]
        n_rows = int(shape[0]) if len(shape) > 1 else 1
        if name not in packs:
            width = int(shape[-1])
            first.append(
                StepKind(ParameterOf(name), width, 0, GradientOf(name), width, 0, n_rows, width)
            )
            continue
        of_parts: list[Kind] = [
            StepKind(
                ParameterOf(part.parameter), int(shapes[part.parameter][-1]), part.start,
                GradientOf(name), int(shape[-1]), at, n_rows, part.width,
            )
            for part, at in packs[name].places()
        ]  # fmt: skip
        later.append(of_parts)
    later += [[table] for table in tables]
    renewed = [kind for name, pack in packs.items() for kind in pack_copies(name, pack, shapes)]
    phases: list[Sequence[Kind]] = [first, *later, renewed]
    return tuple(tuple(phase) for phase in phases if phase)


def pack_copies(name: str, pack: Pack, shapes: Mapping[str, Sequence[int]]) -> list[CopyKind]:
    """What brings a pack up to date."""
    shape = shapes[name]
    n_rows = int(shape[0]) if len(shape) > 1 else 1
    return [
        CopyKind(
            ParameterOf(part.parameter), int(shapes[part.parameter][-1]), part.start,
            ParameterOf(name), int(shape[-1]), at, n_rows, part.width,
        )
        for part, at in pack.places()
    ]  # fmt: skip
