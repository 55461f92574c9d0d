"""Writes the loop of a group of elementwise operators.

The loop reads children's states by index (no gather), evaluates the whole group in registers,
writes each value that somebody else needs, and adds gradients straight to the children's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from harness.engine.backends.compiled.arguments import Argument, BufferOf, IndexOf, ParameterOf
from harness.engine.backends.compiled.memory import SHARED
from harness.engine.backends.compiled.places import plus
from harness.engine.lowering.plan import (
    BufferName,
    ElementwiseStep,
    Memory,
    Plan,
    Ref,
    Role,
    gradient_buffer,
    state_buffer,
)
from harness.vertex.operators import Shape

EXPRESSIONS = {
    "add": "{0} + {1}",
    "sum": "{sum}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "bias": "{0} + {1}",
    "neg": "-{0}",
    "scale": "F({value!r}) * {0}",
    "shift": "F({value!r}) + {0}",
    "sigmoid": "fast_sigmoid({0})",
    "tanh": "fast_tanh({0})",
    "relu": "max({0}, F(0.0))",
    "exp": "fast_exp({0})",
    "log": "math.log({0})",
    "square": "{0} * {0}",
    "sqrt": "math.sqrt({0})",
    "sigmoid_gradient": "{0} * {1} * (F(1.0) - {1})",
    "tanh_gradient": "{0} * (F(1.0) - {1} * {1})",
    "relu_gradient": "({0} if {1} > F(0.0) else F(0.0))",
}

Name = Callable[[Argument], str]


def group_lines(
    type_id: int,
    plan: Plan,
    step: ElementwiseStep,
    name_of: Name,
    *,
    rows: tuple[str, str, str],
    prefix: str,
    views: Mapping[int, str],
) -> list[str]:
    """Text of one group's loop over `n` rows from `row`, `state_row` and `at` on.

    name_of: what an array is called. rows: what n, row and at are called. prefix: of the names
    that the loop gives its own values. views: matrices that hold the rows of operands, where a row
    of such an operand is no row of one array.
    """
    return _Generator(type_id, plan, step, name_of, *rows, prefix, views).generate()


@dataclass(slots=True)
class _Generator:
    type_id: int
    plan: Plan
    step: ElementwiseStep
    array: Name
    n: str
    first: str  # row
    at: str  # row in what is used anew by every batch
    prefix: str
    views: Mapping[int, str]
    rows: dict[str, str] = field(default_factory=dict)  # expression of a row -> its name
    # Of matrices: a row and where its columns begin -> its part, over which a loop is vectorised.
    parts: dict[tuple[str, int], str] = field(default_factory=dict)
    loads: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    loaded: dict[str, str] = field(default_factory=dict)

    def generate(self) -> list[str]:
        nodes, group = self.plan.nodes, self.step.nodes
        for i in group:
            node = nodes[i]
            operands = [
                self._value(k) if k in group else self._load(k, node.index) for k in node.inputs
            ]
            expression = EXPRESSIONS[node.op].format(
                *operands, value=node.value, sum=" + ".join(operands)
            )
            self.body.append(f"{self._value(i)} = {expression}")
            if i in self.plan.refs:
                self.stores.append(f"{self._element(self.plan.refs[i])} = {self._value(i)}")
        for i, state, slot in self.step.added_to:
            element = self._child_element(gradient_buffer(state), slot)
            self.stores.append(f"{element} += {self._value(i)}")
        return self._lines(nodes[group[0]].shape)

    def _value(self, i: int) -> str:
        return f"{self.prefix}v{i}"

    def _load(self, i: int, index: int) -> str:
        node = self.plan.nodes[i]
        ref = self.plan.refs.get(i)
        if i in self.views:
            element = self._at(f"{self.views[i]}[m]", 0)
        elif ref is not None and ref.buffer.is_gathered:
            element = self._gathered_element(ref)
        elif ref is not None:
            element = self._element(ref)
        elif node.op == "parameter":
            array = self.array(ParameterOf(node.name))
            element = f"{array}[k]" if self._is_matrix else f"{array}[{plus('j', index)}]"
        else:
            slot = node.index if node.op == "gather" else None
            element = self._child_element(state_buffer(node.name), slot)
        if element not in self.loaded:
            self.loaded[element] = f"{self.prefix}x{len(self.loaded)}"
            self.loads.append(f"{self.loaded[element]} = {element}")
        return self.loaded[element]

    @property
    def _is_matrix(self) -> bool:
        """Whether values are matrices, which have the same bias in every row."""
        return len(self.plan.nodes[self.step.nodes[0]].shape) > 1

    def _at(self, expression: str, start: int) -> str:
        """An element of a row, whose own columns begin at `start`."""
        row = self.rows.setdefault(expression, f"{self.prefix}r{len(self.rows)}")
        if not self._is_matrix:
            return f"{row}[{plus('j', start)}]"
        return f"{self.parts.setdefault((row, start), f'{self.prefix}p{len(self.parts)}')}[k]"

    def _element(self, ref: Ref) -> str:
        memory = self.plan.buffers[ref.buffer].memory
        offset = {Memory.SAVED: f"{self.first} + m", Memory.SCRATCH: f"{self.at} + m"}.get(
            memory, "state_row + m"
        )
        return self._at(f"{self._buffer(ref.buffer)}[{offset}]", ref.start)

    def _gathered_element(self, ref: Ref) -> str:
        """Read the child itself: the gather's own buffer is empty where its rows are a view."""
        states = state_buffer(ref.buffer.of)
        if ref.buffer.role is Role.GATHER_EACH:
            return self._child_element(states, None, ref.start)
        slots = self.plan.slots[ref.buffer.of]
        slot, column = divmod(ref.start, self.plan.buffers[ref.buffer].width // len(slots))
        return self._child_element(states, slots[slot], column)

    def _child_element(self, name: BufferName, slot: int | None, column: int = 0) -> str:
        slots = None if slot is None else self.plan.slots[name.of]
        index = self.array(IndexOf(self.type_id, slots))
        if slots is None or slot is None:
            at = f"{index}[{self.first} + m]"
        else:
            first = f"({self.first} + m) * {len(slots)}"
            at = f"{index}[{plus(first, slots.index(slot))}]"
        return self._at(f"{self._buffer(name)}[{at}]", column)

    def _buffer(self, name: BufferName) -> str:
        return self.array(BufferOf(SHARED if name.is_shared else self.type_id, name))

    def _lines(self, shape: Shape) -> list[str]:
        lines = [f"for m in range({self.n}):"]
        lines += [f"    {name} = {row}" for row, name in self.rows.items()]
        if len(shape) == 1:
            lines.append(f"    for j in range({shape[0]}):")
        else:
            width = shape[1]
            lines.append(f"    for q in range({shape[0]}):")
            for (row, start), part in self.parts.items():
                at = plus(f"q * {width}", start)
                lines.append(f"      {part} = part({row}, {at}, {width})")
            lines.append(f"      for k in range({width}):")
        return lines + [f"        {line}" for line in (*self.loads, *self.body, *self.stores)]
