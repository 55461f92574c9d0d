"""Groups of elementwise operators as kinds, each with the sums that it reads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from harness.engine.backends.cuda.kinds import (
    LoadParameter,
    Operand,
    Product,
    Store,
    TileKind,
)
from harness.engine.backends.cuda.parts import Sum
from harness.engine.backends.cuda.places import CONSTANTS
from harness.engine.backends.cuda.stage import Stage
from harness.engine.lowering.operations import Operation
from harness.engine.lowering.plan import ElementwiseStep, Ref
from harness.errors import UnsupportedTrial


def write_group(stage: Stage, step: ElementwiseStep, place: int) -> None:
    """Add the kind of one group."""
    _Group(stage, step, place).write()


@dataclass(slots=True)
class _Group:
    """One kind in the making.

    names: of operands and of columns that are summed up. reads, writes: what it waits for, and what
    is there behind it.
    """

    stage: Stage
    step: ElementwiseStep
    place: int
    names: dict[Operand | Ref, str] = field(default_factory=dict)
    loads: list[tuple[str, Operand]] = field(default_factory=list)
    sums: list[tuple[str, tuple[Operand, ...]]] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    reads: list[Ref] = field(default_factory=list)
    writes: list[Ref] = field(default_factory=list)

    def write(self) -> None:
        plan = self.stage.places.plan
        operations = []
        for i in self.step.nodes:
            node = plan.nodes[i]
            operands = tuple(self._operand(k, i) for k in node.inputs)
            operations.append(Operation(f"v{i}", node.op, operands, node.value))
            if i in plan.refs:
                self.stores.append(Store(self.stage.places.out(plan.refs[i]), f"v{i}"))
                self.writes.append(plan.refs[i])
        node = plan.nodes[self.step.nodes[0]]
        kind = TileKind(
            node.width, tuple(self.sums), tuple(self.products), tuple(self.loads),
            tuple(operations), tuple(self.stores),
        )  # fmt: skip
        on_edges = self.stage.places.on_edges(self.step.nodes[0])
        self.stage.emit(kind, reads=self.reads, writes=self.writes, on_edges=on_edges)

    def _operand(self, k: int, reader: int) -> str:
        if k in self.step.nodes:
            return f"v{k}"
        plan = self.stage.places.plan
        node, ref = plan.nodes[k], plan.refs.get(k)
        is_value = ref is not None and node.op not in CONSTANTS
        if is_value and ref is not None:
            if ref in self.names:
                return self.names[ref]
            one = self.stage.sum_of(ref)
            if one is not None and self.stage.fuse:
                return self._summed(one, ref)
            self.stage.need(ref)
            self.reads.append(ref)
        operand = self.stage.places.operand(k, plan.nodes[reader].index)
        if operand is None:
            raise UnsupportedTrial(f"{plan.name} reads several children as one value")
        if isinstance(operand, LoadParameter) and len(plan.nodes[reader].shape) > 1:
            operand = replace(operand, period=plan.nodes[reader].shape[-1])
        if operand not in self.names:
            self.names[operand] = f"x{len(self.loads)}"
            self.loads.append((self.names[operand], operand))
        return self.names[operand]

    def _summed(self, one: Sum, ref: Ref) -> str:
        name = self.names[ref] = f"s{len(self.sums)}"
        terms = one.terms(name, ref)
        self.sums.append((name, terms.operands))
        self.products += terms.products
        self.reads += one.reads(ref)
        kept = self.stage.is_kept(one, ref, self.place)
        one.read_at.add(self.place)
        if kept:
            self.stores.append(Store(self.stage.places.out(ref), name))
            self.writes.append(ref)
            one.settled.append(ref)
        return name
