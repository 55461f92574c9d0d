"""Translation of a plan's steps to instructions: kernels and their operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod

from dynbatch.harness.compiler.pointers import FLOAT_BYTES
from dynbatch.harness.engine.backends.compiled.arguments import (
    Argument,
    ArgumentKind,
    CopyOf,
    Instruction,
    Operand,
    select_count_register,
)
from dynbatch.harness.engine.backends.compiled.operators import (
    GroupWriter,
    OperandFactory,
    write_operator,
)
from dynbatch.harness.engine.cpu_kernels import product_kernels as products
from dynbatch.harness.engine.cpu_kernels import row_kernels
from dynbatch.harness.engine.cpu_kernels.context import Register, Taken
from dynbatch.harness.engine.cpu_kernels.loss_kernels import compute_softmax_loss
from dynbatch.harness.engine.cpu_kernels.own_matmuls import PACKED_ROWS, is_packed
from dynbatch.harness.engine.cpu_kernels.row_kernels import add_up_rows
from dynbatch.harness.engine.cpu_kernels.vectors import LANES
from dynbatch.harness.engine.lowering.plan import (
    WHOLE_STAGES,
    BufferName,
    CopyStep,
    ElementwiseStep,
    GatherStep,
    MatmulStep,
    OperatorStep,
    PackStep,
    Plan,
    ScatterAddStep,
    SinkStep,
    SoftmaxLossStep,
    Step,
    count_slots,
    name_gradient_buffer,
    name_state_buffer,
)
from dynbatch.harness.vertex.operators import Shape

# The number of a function's rows in a mini-batch from which a copy saves more time than it takes.
# One of W^T: a library rearranges W^T in each matmul of several rows, but the engine's own kernels
# are as fast with W^T (AVX-512). A packed one of 256 x 1 024 takes 62 us, and 77 more if transposed
# (one Xeon core); in inference it is made only once. Training Var-LSTM one sentence at a time, the
# engine ran at half its speed when 16 rows were enough, with and without AVX-512.
TRANSPOSED_FROM = 100 if LANES == 16 else 40
PACKED_FROM, PACKED_FROM_IN_TRAINING = 16, 64
NO_LIMIT = 2**31


@dataclass(slots=True)
class StageWriter:
    """Writer of one stage of one vertex function.

    Attributes:
        has_own_kernels: whether the engine's own kernels multiply.
    """

    type_id: int
    plan: Plan
    stage: str
    shapes: Mapping[str, Shape]
    has_own_kernels: bool
    places: OperandFactory = field(init=False)
    _filled: set[BufferName] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.places = OperandFactory(self.type_id, self.plan, self.shapes)

    @property
    def is_whole(self) -> bool:
        """True if the stage may take all rows at once, including the backward stage of outputs."""
        return self.stage in WHOLE_STAGES or (self.stage == "backward" and self.type_id < 0)

    def write(self) -> tuple[Instruction, ...]:
        """Write the instructions of a batch."""
        written: list[Instruction] = []
        for step in self.plan.steps[self.stage]:
            instructions = list(self._write(step))
            if self.is_whole:
                written += self._fill(instructions)
            written += instructions
        return tuple(written)

    def _fill(self, instructions: Sequence[Instruction]) -> Iterator[Instruction]:
        """Yield copies of rows that batches read in place, before all rows are read in one call."""
        for operand in (candidate for each in instructions for candidate in each.operands):
            array = operand.array
            if (
                operand.run is None
                or array.kind is not ArgumentKind.BUFFER
                or array.of in self._filled
            ):
                continue
            self._filled.add(array.of)
            yield self._fill_viewed(array.of)

    def _fill_viewed(self, name: BufferName) -> Instruction:
        slots = self.plan.find_gathered_slots(name)
        n_slots = count_slots(slots)
        bounds = self.places.make_own_argument(
            ArgumentKind.EDGE_BOUNDS if slots is None else ArgumentKind.STARTS
        )
        width = FLOAT_BYTES * self.plan.buffers[name].width // n_slots
        operands = (
            Operand(self.places.make_buffer_argument(name_state_buffer(name.of)), pitch=width),
            Operand(self.places.make_own_argument(ArgumentKind.INDEX, slots)),
            Operand(self.places.make_own_argument(ArgumentKind.RUNS, slots)),
            Operand(bounds),
            Operand(self.places.make_buffer_argument(name)),
            Operand(self.places.make_own_argument(ArgumentKind.FILLED, name)),
        )
        return Instruction(
            row_kernels.materialize_views,
            operands,
            (n_slots, width),
            count=Register.BATCH,
            whole_only=True,
            counts_itself=True,
        )

    @singledispatchmethod
    def _write(self, step: Step) -> Iterator[Instruction]:
        raise TypeError(f"unknown step {type(step).__name__}")

    @_write.register
    def _write_gather(self, step: GatherStep) -> Iterator[Instruction]:
        slots = step.slots
        n_slots = count_slots(slots)
        row, count = self._select_row_registers(slots)
        pitch = FLOAT_BYTES * self.plan.buffers[step.buffer].width
        width = pitch // n_slots
        operands = (
            Operand(self.places.make_buffer_argument(name_state_buffer(step.state)), pitch=width),
            self.places.make_index_operand(slots),
            Operand(self.places.make_buffer_argument(step.buffer), row, pitch, width=pitch),
        )
        yield Instruction(
            row_kernels.gather,
            operands,
            (n_slots, width),
            count,
            unless=self.places.make_own_argument(ArgumentKind.RUNS, slots),
            bytes_per_row=pitch,
            moves=True,
        )

    def _select_row_registers(self, slots: object) -> tuple[Register, Register]:
        if slots is None:
            return Register.EDGE_START, Register.N_EDGES
        return Register.START, Register.N

    @_write.register
    def _write_copy(self, step: CopyStep) -> Iterator[Instruction]:
        n_bytes = FLOAT_BYTES * step.out.width
        yield Instruction(
            row_kernels.copy,
            (self.places.make_operand(step.source), self.places.make_operand(step.out)),
            (n_bytes,),
            select_count_register(self.places.find_buffer(step.out).domain),
            bytes_per_row=n_bytes,
            moves=True,
        )

    @_write.register
    def _write_pack(self, step: PackStep) -> Iterator[Instruction]:
        """Yield copies of the parts of a pack, which count as one launch."""
        *n_rows, width = self.shapes[step.pack.name]
        for k, (part, at) in enumerate(step.pack.iterate_parts()):
            source = self.shapes[part.parameter][-1]
            operands = (
                self.places.make_column_operand(part.parameter, source, part.start, part.width),
                self.places.make_column_operand(step.pack.name, width, at, part.width),
            )
            yield Instruction(
                row_kernels.pack,
                operands,
                (FLOAT_BYTES * part.width, *(n_rows or (1,))),
                taken=Taken.ALL,
                moves=True,
                counts_itself=k > 0,
            )

    @_write.register
    def _write_matmul(self, step: MatmulStep) -> Iterator[Instruction]:
        rows, columns = self.shapes[step.parameter]
        k = columns if step.transposed else rows
        x, *children = self.places.make_row_operands(step.x)
        weight = nothing = self.places.make_parameter_operand(step.parameter)
        copy, n_rows, chosen = nothing, nothing, self._choose_copy(step)
        limits: tuple[int, ...] = (0, 0, 0)
        if chosen is not None:
            copy = Operand(self.places.make_own_argument(ArgumentKind.COPY, chosen))
            n_rows = Operand(self.places.make_own_argument(ArgumentKind.COUNT))
            limits = chosen.rows_from, int(chosen.is_packed), chosen.rows_up_to
        bias = nothing if step.bias is None else self.places.make_parameter_operand(step.bias)
        constants = (
            *(step.x.width // k, rows, columns, int(step.transposed)),
            *(int(step.accumulate), int(step.bias is not None)),
            *limits,
        )
        kernel = products.multiply_children if children else products.multiply_rows
        yield Instruction(
            kernel,
            (x, self.places.make_operand(step.out), weight, bias, copy, n_rows, *children),
            constants,
            select_count_register(self.places.find_buffer(step.out).domain),
        )

    def _choose_copy(self, step: MatmulStep) -> CopyOf | None:
        """Choose the copy of W or W^T that a matmul uses, if one is worth its time.

        A library packs W, and rearranges W^T, in each matmul; with few rows, this takes as long as
        multiplying. 32 rows by 256 x 1 024 transposed run at 114 GFLOP/s, and with a copy at 202
        (one Zen 5 core, oneDNN).
        """
        shape = self.shapes[step.parameter]
        k, m = shape[::-1] if step.transposed else shape
        has_few_rows = self.type_id > 0 and not self.is_whole  # those of one batch of many
        trains = bool(self.plan.steps["backward"] or self.plan.steps["backward_lazy"])
        packs = self.has_own_kernels and is_packed(k, m)
        if packs and (has_few_rows or not trains or LANES == 8):
            rows_from = PACKED_FROM_IN_TRAINING if trains else PACKED_FROM
            rows_up_to = NO_LIMIT if has_few_rows else PACKED_ROWS
            return CopyOf(step.parameter, step.transposed, True, rows_from, rows_up_to)
        if step.transposed and has_few_rows:
            return CopyOf(step.parameter, True, False, TRANSPOSED_FROM, NO_LIMIT)
        return None

    @_write.register
    def _write_elementwise(self, step: ElementwiseStep) -> Iterator[Instruction]:
        instruction = GroupWriter(self.places, step).write()
        if step.added_to:
            added_to = {(state, slot is None) for _, state, slot in step.added_to}
            instruction = self._guard_shared_rows(instruction, added_to)
        yield instruction

    def _guard_shared_rows(
        self, instruction: Instruction, added_to: set[tuple[str, bool]]
    ) -> Instruction:
        """Let one thread add to rows that two vertices of a batch may have in common.

        A state whose children are read both by slot and by edge has two lists of children. Neither
        shows whether the other has the same child, so one thread adds in this case, too.
        """
        nodes = self.plan.nodes
        by_edge = {node.name for node in nodes if node.op == "gather_each"}
        by_slot = {node.name for node in nodes if node.op == "gather"}
        apart: tuple[Argument, ...] = ()
        if not any(state in by_edge & by_slot for state, _ in added_to):
            lists = {None if of_edges else self.plan.slots[state] for state, of_edges in added_to}
            apart = tuple(
                self.places.make_own_argument(ArgumentKind.APART, slots)
                for slots in sorted(lists, key=str)
            )
        return replace(instruction, taken=Taken.UNLESS_APART, apart=apart)

    @_write.register
    def _write_scatter_add(self, step: ScatterAddStep) -> Iterator[Instruction]:
        slots = None if step.slots is None else self.plan.slots[step.state]
        target = name_gradient_buffer(step.state)
        width = self.places.find_state_width(step.state)
        is_whole = step.slots == slots
        n_slots = count_slots(slots) if is_whole else 1
        slot = 0 if slots is None or step.slots is None else slots.index(step.slots[0])
        operands = (
            Operand(self.places.make_buffer_argument(target), pitch=FLOAT_BYTES * width),
            self.places.make_index_operand(slots, slot),
            self.places.make_operand(step.source),
        )
        instruction = Instruction(
            row_kernels.scatter_add,
            operands,
            (n_slots, width),
            self._select_row_registers(slots)[1],
            bytes_per_row=FLOAT_BYTES * n_slots * width,
            bytes_unless=self.places.make_own_argument(ArgumentKind.RUNS, slots)
            if is_whole
            else None,
            moves=True,
        )
        yield self._guard_shared_rows(instruction, {(step.state, step.slots is None)})

    @_write.register
    def _write_sink(self, step: SinkStep) -> Iterator[Instruction]:
        """Yield sums of parameter gradients.

        Gradients of looked-up rows stay in place until the update.
        """
        node = self.plan.nodes[step.node]
        if node.op == "row_sum":
            yield Instruction(row_kernels.leave, ())
            return
        *inputs, dy = (self.plan.refs[i] for i in node.inputs)
        width = node.shape[-1]
        per_vertex = dy.width // width
        count = select_count_register(self.places.find_buffer(dy).domain)
        gradient = tuple(
            Operand(Argument(kind, node.name))
            for kind in (ArgumentKind.GRADIENT, ArgumentKind.WRITTEN)
        )
        dy_operand = self.places.make_operand(dy)
        if not inputs:
            operands = dy_operand, *gradient
            yield Instruction(add_up_rows, operands, (width, per_vertex), count, Taken.ALL)
            return
        x, *children = self.places.make_row_operands(inputs[0])
        constants = per_vertex, *node.shape, int(bool(children))
        operands = (x, dy_operand, *gradient, *children)
        yield Instruction(products.sum_outer, operands, constants, count, Taken.ALL)

    @_write.register
    def _write_operator(self, step: OperatorStep) -> Iterator[Instruction]:
        yield write_operator(self.places, step.node)

    @_write.register
    def _write_softmax_loss(self, step: SoftmaxLossStep) -> Iterator[Instruction]:
        logits = self.places.make_operand(step.logits)
        operands = (
            logits,
            logits if step.bias is None else self.places.make_parameter_operand(step.bias),
            self.places.make_pull_operand(step.label),
            self.places.make_operand(step.loss),
            self.places.make_operand(step.log_sum),
        )
        constants = (step.logits.width, int(step.bias is not None), int(step.leaves_gradient))
        yield Instruction(compute_softmax_loss, operands, constants)
