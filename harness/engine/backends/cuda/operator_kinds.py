"""Operators that are no products and not elementwise, as kinds, or as sums of edges."""

from __future__ import annotations

from harness.engine.backends.cuda.arrays import ParameterOf, PullOf
from harness.engine.backends.cuda.kinds import (
    Columns,
    Constant,
    Load,
    MatrixForm,
    MatrixKind,
    RowSumKind,
    SoftmaxKind,
)
from harness.engine.backends.cuda.parts import EdgeSumPart, Sum
from harness.engine.backends.cuda.places import CONSTANTS, READ_THROUGH, overlap
from harness.engine.backends.cuda.stage import Stage
from harness.engine.lowering.plan import Ref, SoftmaxLossStep
from harness.errors import UnsupportedTrial

MATRIX_FORMS = {form.value: form for form in MatrixForm}


def write_operator(stage: Stage, i: int, place: int) -> None:
    """Add what computes a node, if anything has to."""
    node, refs = stage.places.plan.nodes[i], stage.places.plan.refs
    values = [refs[k] for k in node.inputs if k in refs]
    if node.op == "sum_edges":
        _sum_edges(stage, i, place)
        return
    stage.need(*values)
    if node.op in CONSTANTS:
        if _needs_memory(stage, refs[i]):
            stage.stored(Constant(CONSTANTS[node.op]), refs[i], ())
    elif node.op in READ_THROUGH:
        if not stage.places.is_read_through(i):
            stage.stored(_through_index(stage, i), refs[i], values)
    elif node.op == "expand":
        stage.stored(Load(stage.columns(values[0]), same=True), refs[i], values)
    elif node.op == "sum_elements":
        kind = RowSumKind(stage.columns(values[0]), values[0].width, stage.places.out(refs[i]))
        stage.emit(kind, reads=values, writes=(refs[i],), like=refs[i])
    elif node.op in MATRIX_FORMS:
        _matrix(stage, i, values)
    else:
        _softmax(stage, i, values)


def _needs_memory(stage: Stage, ref: Ref) -> bool:
    """Whether a constant is read other than position by position."""
    plan = stage.places.plan
    shown = [plan.refs[k] for k in plan.pushes if k in plan.refs]
    if ref.buffer.is_shared or any(overlap(one, ref) for one in shown):
        return True
    readings = [reading for reading in stage.places.readings if overlap(reading.ref, ref)]
    return not all(reading.alone and reading.ref == ref for reading in readings)


def _through_index(stage: Stage, i: int) -> Load:
    """What a lookup or a spread reads, for one that is written all the same."""
    places = stage.places
    is_lookup = places.plan.nodes[i].op == "lookup"
    columns = places.looked_up(i) if is_lookup else places.spread(i)
    if columns is None:
        raise UnsupportedTrial("a value that lies in several places is spread to edges")
    return Load(columns)


def _sum_edges(stage: Stage, i: int, place: int) -> None:
    places = stage.places
    (operand,) = places.plan.nodes[i].inputs
    reads = (places.plan.refs[operand],) if operand in places.plan.refs else ()
    stage.need(*reads)
    out = places.plan.refs[i]
    part = EdgeSumPart(out, places.child_rows(operand), places.type_id, reads)
    stage.add(Sum(out, [part], added_at={place}))


def _matrix(stage: Stage, i: int, values: list[Ref]) -> None:
    node, out = stage.places.plan.nodes[i], stage.places.plan.refs[i]
    x, y = values
    n_columns = out.width // x.width if node.op == "outer" else out.width
    operands = (stage.columns(x), stage.columns(y), stage.places.out(out))
    kind = MatrixKind(MATRIX_FORMS[node.op], *operands, x.width, n_columns)
    stage.emit(kind, reads=values, writes=(out,), like=out)


def _softmax(stage: Stage, i: int, values: list[Ref]) -> None:
    """A loss or its gradient by itself."""
    plan = stage.places.plan
    node, ref = plan.nodes[i], plan.refs[i]
    label = PullOf(stage.places.type_id, plan.nodes[node.inputs[1]].name)
    logits, out = stage.columns(values[0]), stage.places.out(ref)
    if node.op == "pick_neg_log_softmax":
        kind = SoftmaxKind(logits, values[0].width, label, loss=out)
    else:
        dy = _dy(stage, node.inputs[2])
        kind = SoftmaxKind(logits, values[0].width, label, gradient=out, dy=dy)
    stage.emit(kind, reads=values, writes=(ref,), like=ref)


def _dy(stage: Stage, i: int) -> Columns | None:
    """The gradient of a loss; None where it is 1."""
    plan = stage.places.plan
    return None if plan.nodes[i].op == "ones" else stage.columns(plan.refs[i])


def write_softmax_loss(stage: Stage, step: SoftmaxLossStep) -> None:
    """Add the kind of a loss that leaves its gradient in the place of the logits."""
    stage.need(step.logits)
    places = stage.places
    out = places.out(step.logits)
    kind = SoftmaxKind(
        out,
        step.logits.width,
        PullOf(places.type_id, step.label),
        bias=None if step.bias is None else ParameterOf(step.bias),
        loss=places.out(step.loss),
        log_sum=places.out(step.log_sum),
        gradient=out if step.leaves_gradient else None,
        biased=out if step.bias is not None and not step.leaves_gradient else None,
    )
    writes = (step.logits, step.loss, step.log_sum)
    stage.emit(kind, reads=(step.logits,), writes=writes, like=step.logits)
