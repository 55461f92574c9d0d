"""Kinds of all functions of a model: those of each stage, and sums of parameter gradients."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatchmethod

from dynbatch.harness.engine.backends.cuda.gradients import (
    build_lazy_sums,
    build_step_sums,
    find_pulls,
    place_sums,
)
from dynbatch.harness.engine.backends.cuda.kinds import (
    Kind,
    Load,
    LoadParameter,
    Operand,
    Product,
    Store,
    SumKind,
    TileKind,
    Tiling,
    UnbatchedKind,
)
from dynbatch.harness.engine.backends.cuda.places import (
    Places,
    ProductPart,
    PulledPart,
    Sum,
    Terms,
    find_parameter_shape,
    locate_weight,
)
from dynbatch.harness.engine.backends.cuda.stage import (
    GroupBuilder,
    PlacedKind,
    Stage,
    name_pack,
    write_operator,
    write_softmax_loss,
)
from dynbatch.harness.engine.backends.cuda.updates import build_updates, copy_parts, find_transposed
from dynbatch.harness.engine.backends.cuda.words import GradientOf, ParameterOf, Reader
from dynbatch.harness.engine.lowering.plan import (
    FORWARD,
    STAGES,
    CopyStep,
    ElementwiseStep,
    GatherStep,
    MatmulStep,
    OperatorStep,
    PackStep,
    Plan,
    Ref,
    ScatterAddStep,
    SinkStep,
    SoftmaxLossStep,
    Step,
    name_gradient_buffer,
)
from dynbatch.harness.vertex.subgraph.columns import Pack


@dataclass(slots=True)
class StageConverter:
    """Converter of the steps of a stage to kinds.

    Attributes:
        shapes: shapes of all parameters, including packs.
        sums_after: number of phases after which the operands of sums over whole functions exist.
    """

    stage: Stage
    pulled: Mapping[str, tuple[Terms, ...]]
    left_out: Collection[int]
    shapes: Mapping[str, Sequence[int]]
    sums_after: int = 0

    def write(self) -> list[PlacedKind]:
        """Write all kinds of the stage."""
        stage = self.stage
        if stage.name == "backward":
            self._pull()
        for index, step in enumerate(stage.places.plan.steps[stage.name]):
            if index not in self.left_out:
                self._write_step(step, index)
        for pending in stage.sums:
            stage.settle(
                pending,
                [ref for ref in pending.list_unsettled() if stage.is_kept(pending, ref, None)],
            )
        return stage.placed_kinds

    def _pull(self) -> None:
        """Add the gradients of the function's states, as sums that a later step computes."""
        nodes = self.stage.places.plan.nodes
        for state, width in {n.name: n.width for n in nodes if n.op == "state_gradient"}.items():
            out = Ref(name_gradient_buffer(state), 0, width)
            self.stage.sums.append(Sum(out, [PulledPart(out, self.pulled.get(state, ()))]))

    @singledispatchmethod
    def _write_step(self, step: Step, index: int) -> None:
        raise TypeError(f"unknown step {type(step).__name__}")

    @_write_step.register
    def _skip_gather(self, step: GatherStep, index: int) -> None:
        """Skip a gather, because children's states are read in place."""

    @_write_step.register
    def _skip_scatter_add(self, step: ScatterAddStep, index: int) -> None:
        """Skip a scatter-add, because children pull their gradients."""

    @_write_step.register
    def _write_elementwise(self, step: ElementwiseStep, index: int) -> None:
        GroupBuilder(self.stage, step, index).write()

    @_write_step.register
    def _write_operator(self, step: OperatorStep, index: int) -> None:
        write_operator(self.stage, step.node, index)

    @_write_step.register
    def _write_softmax_loss(self, step: SoftmaxLossStep, index: int) -> None:
        write_softmax_loss(self.stage, step)

    @_write_step.register
    def _write_copy(self, step: CopyStep, index: int) -> None:
        self.stage.need(step.source)
        at = 0
        for columns, width in self.stage.places.list_pieces(step.source):
            self.stage.store_operand(
                Load(columns), step.out.slice_columns(at, width), (step.source,)
            )
            at += width

    @_write_step.register
    def _write_matmul(self, step: MatmulStep, index: int) -> None:
        stage = self.stage
        stage.need(step.x)
        shape = find_parameter_shape(stage.places, step.parameter)
        k = shape[1] if step.transposed else shape[0]
        if step.x.width != k:
            self._write_matrix_product(step, step.x.width // k)
            return
        pending = stage.find_sum(step.out) if step.accumulate else None
        if pending is None:
            pending = self._begin_sum(step)
        pending.parts.append(ProductPart(stage.places, step))
        pending.added_at.add(index)
        stage.add(pending)

    def _begin_sum(self, step: MatmulStep) -> Sum:
        """Begin a sum, which starts with nothing, a bias, or the result of another stage."""
        if step.accumulate:
            self.stage.need(step.out)
            reads: tuple[Ref, ...] = (step.out,)
            return Sum(
                step.out, [], (Load(self.stage.locate_columns(step.out)), *_make_bias(step)), reads
            )
        return Sum(step.out, [], _make_bias(step))

    def _write_matrix_product(self, step: MatmulStep, per_row: int) -> None:
        """Add a product with every row of each vertex's matrix."""
        stage = self.stage
        stage.need(step.out)
        x, out = stage.locate_columns(step.x), stage.places.locate_own(step.out)
        weight, leading = locate_weight(stage.places, step)
        start = (Load(out),) if step.accumulate else ()
        kind = TileKind(
            step.out.width // per_row,
            sums=(("s0", (*start, *_make_bias(step))),),
            products=(Product("s0", x, step.x.width // per_row, weight, leading, 0, 0),),
            stores=(Store(out, "s0"),),
            per_row=per_row,
        )
        reads = (step.x, step.out) if step.accumulate else (step.x,)
        stage.emit(kind, reads=reads, writes=(step.out,))

    @_write_step.register
    def _write_pack(self, step: PackStep, index: int) -> None:
        for kind in copy_parts(step.pack, self.shapes):
            self.stage.emit(kind, reads=(), writes=(), on_edges=False)
        self.stage.written.append((name_pack(step.pack.name), 0))

    @_write_step.register
    def _write_sink(self, step: SinkStep, index: int) -> None:
        """Add parameter gradients per batch; gradients.build_lazy_sums adds those over all rows."""
        stage, plan = self.stage, self.stage.places.plan
        node = plan.nodes[step.node]
        reads = tuple(plan.refs[k] for k in node.inputs if k in plan.refs)
        stage.need(*reads)
        if node.op == "row_sum":
            return
        if stage.name == "backward_lazy":
            self.sums_after = max(self.sums_after, stage.find_phase(*reads))
            return
        for kind in build_step_sums(stage.places, step):
            on_edges = stage.places.is_on_edges(node.inputs[-1])
            stage.emit(kind, reads=reads, writes=(f"d {node.name}",), on_edges=on_edges)


def _make_bias(step: MatmulStep) -> tuple[Operand, ...]:
    return () if step.bias is None else (LoadParameter(ParameterOf(step.bias), 0),)


# A launch runs one kernel. Few kinds per kernel limit registers and compilation time.
KERNELS = ("forward", "backward", "backward_lazy", "update")


@dataclass(frozen=True, slots=True)
class ModelKinds:
    """Kinds of all functions.

    Attributes:
        stages: kinds of each stage by type id.
        unbatched: kinds that run once, by kernel: sums of gradients over all rows in the phases
            that end the lazy stage, and those of the update.
        summed: parameters with dense gradients.
        added_to: parameters whose gradients must be zeroed first.
    """

    stages: Mapping[str, Mapping[int, Sequence[PlacedKind]]]
    unbatched: Mapping[str, Sequence[UnbatchedKind]]
    summed: frozenset[str]
    added_to: frozenset[str]
    readers: frozenset[Reader]

    def select_stages(self, kernel: str) -> Mapping[str, Mapping[int, Sequence[PlacedKind]]]:
        """Return the stages that one kernel runs."""
        names = FORWARD if kernel == "forward" else (kernel,)
        return {name: self.stages[name] for name in names if name in self.stages}

    def list_kinds(self, kernel: str) -> list[Kind]:
        """Return the kinds that one kernel runs, including equal ones."""
        kinds = [placed.kind for placed in _list_placed(self.select_stages(kernel))]
        return [*kinds, *(single.kind for single in self.unbatched.get(kernel, ()))]


def _list_placed(stages: Mapping[str, Mapping[int, Sequence[PlacedKind]]]) -> list[PlacedKind]:
    return [
        placed
        for of_type in stages.values()
        for placed_kinds in of_type.values()
        for placed in placed_kinds
    ]


def _name_gradients(kinds: Iterable[Kind]) -> frozenset[str]:
    """Return the parameters whose gradients are sums of these kinds."""
    arrays = [kind.gradient for kind in kinds if isinstance(kind, SumKind)]
    return frozenset(array.name for array in arrays if isinstance(array, GradientOf))


def find_model_kinds(
    plans: Mapping[int, Plan],
    shapes: Mapping[str, Sequence[int]],
    packs: Mapping[str, Pack],
    several: Collection[Reader],
    tiling: Tiling,
    *,
    fuse: bool,
) -> ModelKinds:
    """Find the kinds of a model.

    Args:
        shapes: shapes of all parameters, including packs.
        several: readers that read some state row more than once.
    """
    places = {type_id: Places(type_id, plan) for type_id, plan in plans.items()}
    pulls = find_pulls(places.values(), several, fuse=fuse)
    stages: dict[str, dict[int, list[PlacedKind]]] = {stage: {} for stage in STAGES}
    sums_after = 0
    for stage in STAGES:
        for type_id, mine in places.items():
            left_out = pulls.left_out[type_id] if stage == "backward" else frozenset[int]()
            writer = StageConverter(Stage(mine, stage, fuse), pulls.terms, left_out, shapes)
            stages[stage][type_id] = writer.write()
            if stage == "backward_lazy":
                sums_after = max(sums_after, writer.sums_after)
    sums, added_to = build_lazy_sums(places.values())
    kinds = [placed.kind for placed in _list_placed(stages)]
    added_to |= _name_gradients(kinds)
    summed = added_to | _name_gradients(sums)
    updates = build_updates(places.values(), summed, find_transposed(kinds), packs, shapes)
    unbatched = {"backward_lazy": place_sums(sums, sums_after, tiling), "update": updates}
    return ModelKinds(stages, unbatched, summed, added_to, pulls.readers)
