"""Rewrites of vertex functions that reduce the number of kernels.

Narrowing: if kernels can start at any column, elementwise operators over joined gates are split
into one for every gate: slice(sigmoid(x)) becomes sigmoid(slice(x)). One kernel then computes r, z
and r h of a GRU, instead of one for the joined gates and another one after it.

Horizontal fusion: x A and x B become x [A | B], and readers use its columns. Biases that are added
to all of these matmuls are joined, too, and so are sums of matmuls that are joined in the same way.
Of gates x A + h C + b and x D + h F + d, two matmuls remain, as if the model had joined its
matrices.

Source: ACRoBat, Fegade et al., MLSys 2024, section 5 (calls in one static block that share an input
become one wider call).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dynbatch.harness.engine.lowering.plan import CopyStep, Plan, Step
from dynbatch.harness.vertex.autodiff import Gradient
from dynbatch.harness.vertex.operators import OPERATORS, PARAMETER, Node
from dynbatch.harness.vertex.program import (
    Builder,
    OperatorStage,
    VertexFunction,
    find_consumers,
    find_stages,
)
from dynbatch.harness.vertex.subgraph.columns import LaidOutFunction, Pack, ParameterPart


def sink_slices(nodes: Sequence[Node]) -> tuple[tuple[Node, ...], tuple[int, ...]]:
    """Replace slice(x + bias) by slice(x) + slice(bias), so that the sum joins the gate's kernel.

    A sliced bias starts at column `index` of its parameter.

    Returns:
        The new nodes, and the new id of every old node.
    """
    new: list[Node] = []
    moved: list[int] = []
    for node in nodes:
        inputs = tuple(moved[i] for i in node.inputs)
        if node.op == "slice" and new[inputs[0]].op == "bias":
            x, bias = new[inputs[0]].inputs
            new.append(Node("slice", (x,), node.shape, node.domain, index=node.index))
            new.append(
                Node("bias", (len(new) - 1, bias), node.shape, node.domain, index=node.index)
            )
        else:
            new.append(replace(node, inputs=inputs))
        moved.append(len(new) - 1)
    return tuple(new), tuple(moved)


def sink_all_slices(
    function: VertexFunction, gradient: Gradient | None
) -> tuple[VertexFunction, Gradient | None]:
    """Return a function, and its gradient if there is one, with all slices sunk."""
    nodes, moved = sink_slices(function.nodes if gradient is None else gradient.nodes)
    forward = nodes if gradient is None else nodes[: moved[len(function.nodes) - 1] + 1]
    function = function.replace_nodes(forward, moved.__getitem__)
    if gradient is not None:
        gradient = Gradient(
            nodes,
            len(function.nodes),
            tuple((moved[a], moved[b]) for a, b in gradient.gathers),
            tuple(moved[i] for i in gradient.sinks),
        )
    return function, gradient


CONSTANTS = ("zeros", "ones")


def narrow_function(function: VertexFunction) -> VertexFunction:
    """Return a function without elementwise values that are only sliced.

    Args:
        function: A function whose gradient is not derived yet.
    """
    return _Narrowing(function, _find_only_sliced(function)).run()


def _find_only_sliced(function: VertexFunction) -> frozenset[int]:
    """Find elementwise vectors that only slices, or other such vectors, read."""
    nodes, results = function.nodes, function.results
    consumers = find_consumers(nodes, range(len(nodes)))
    sliced: set[int] = set()
    for i in reversed(range(len(nodes))):
        narrow = [k for k in consumers[i] if nodes[k].op == "slice" or k in sliced]
        if consumers[i] and len(narrow) == len(consumers[i]) and _can_be_cut(nodes[i], nodes):
            sliced |= set() if i in results else {i}
    return frozenset(sliced)


def _can_be_cut(node: Node, nodes: Sequence[Node]) -> bool:
    """Return whether a value can be computed in parts.

    A bias cannot, because its gradient is that of the whole vector.
    """
    elementwise = OPERATORS[node.op].elementwise and node.op != "bias"
    return elementwise and len(node.shape) == 1 and all(nodes[k].op != "pull" for k in node.inputs)


@dataclass(slots=True)
class _Narrowing:
    function: VertexFunction
    cut: frozenset[int]
    builder: Builder = field(default_factory=Builder)
    made: dict[int, int] = field(default_factory=dict)

    def run(self) -> VertexFunction:
        if not self.cut:
            return self.function
        for i in range(len(self.function.nodes)):
            if i not in self.cut:
                self.made[i] = self._make(i)
        return self.function.replace_nodes(self.builder.nodes, self.made.__getitem__)

    def _make(self, i: int) -> int:
        node = self.function.nodes[i]
        if node.op == "slice":
            return self._build_columns(node.inputs[0], node.index, node.width)
        return self.builder.copy(node, [self.made[k] for k in node.inputs], node.shape)

    def _build_columns(self, i: int, start: int, width: int) -> int:
        """Return columns of a value, computed separately if the value is cut."""
        node = self.function.nodes[i]
        if node.op in CONSTANTS:
            return self.builder.copy(node, [], (width,))
        if i not in self.cut:
            return self.builder.slice(self.made[i], start, width)
        operands = [self._build_columns(k, start, width) for k in node.inputs]
        return self.builder.copy(node, operands, (width,))


Group = tuple[int, ...]  # matmuls of one value that run in the same stage


@dataclass(frozen=True, slots=True)
class Wide:
    """Values that become adjacent columns of one value, from left to right.

    Attributes:
        parts: The joined addends: none for a matmul, one for a bias, two for a sum.
    """

    members: tuple[int, ...]
    parts: tuple[Wide, ...] = ()


def plan_fewest_steps(function: VertexFunction, plan_of: Callable[[LaidOutFunction], Plan]) -> Plan:
    """Return the function's plan, with matmuls joined only if that saves steps or copies.

    A value that needs its own columns, such as a state or a part of a concatenation, would have to
    be copied out of a joined one. Gradients that are not adjacent would have to be copied together.
    A join that increases the number of steps or copies is rejected, even if it saves others.
    """
    plan = as_written = plan_of(LaidOutFunction(function, (), {}))
    kept = find_shared_inputs(function)
    if kept:
        plan = plan_of(join_groups(function, kept))
    for group in tuple(kept):
        rest = [other for other in kept if other is not group]
        without = plan_of(join_groups(function, rest)) if rest else as_written
        if not _is_shorter(plan, without):
            kept, plan = rest, without
    return plan if _is_shorter(plan, as_written) else as_written


def _is_shorter(plan: Plan, other: Plan) -> bool:
    """Return whether a plan has fewer steps or copies, and no more of either."""
    ours, theirs = _count_costs(plan), _count_costs(other)
    return ours != theirs and all(a <= b for a, b in zip(ours, theirs, strict=True))


def _count_costs(plan: Plan) -> tuple[int, ...]:
    """Count the steps and copied columns of each batch, then those of each mini-batch."""
    each = (*plan.batch, *plan.backward)
    once = (*plan.eager, *plan.lazy, *plan.backward_lazy)
    return (len(each), _count_copied(each), len(once), _count_copied(once))


def _count_copied(steps: Iterable[Step]) -> int:
    return sum(step.out.width for step in steps if isinstance(step, CopyStep))


def find_shared_inputs(function: VertexFunction) -> list[Group]:
    """Find matmuls that multiply one vector by different parameters in the same stage.

    Matmuls that compute logits are excluded, because a loss and its gradient are computed in place.
    """
    nodes = function.nodes
    consumers = find_consumers(nodes, range(len(nodes)))
    scattered = [i for _, i in function.scatter]
    stages = find_stages(nodes, function.find_gathers(), scattered, function.shown)
    matmuls: dict[tuple[int, OperatorStage], list[int]] = {}
    for i, node in enumerate(nodes):
        is_product = node.op == "matmul" and len(node.shape) == 1
        if (
            is_product
            and stages[i] is not OperatorStage.UNUSED
            and not _is_of_logits(nodes, consumers, i)
        ):
            matmuls.setdefault((node.inputs[0], stages[i]), []).append(i)
    return [tuple(group) for group in matmuls.values() if len(group) > 1]


def _is_of_logits(nodes: Sequence[Node], consumers: Sequence[Sequence[int]], i: int) -> bool:
    """Return whether a loss reads a matmul, or a sum that contains it."""
    return any(
        nodes[k].op == "pick_neg_log_softmax"
        or (nodes[k].op in ("bias", "add") and _is_of_logits(nodes, consumers, k))
        for k in consumers[i]
    )


def join_groups(function: VertexFunction, groups: Sequence[Group]) -> LaidOutFunction:
    """Return the function with one matmul for each of these groups, and the parameters it needs."""
    return _Joining(function, _extend_joins(function, [Wide(group) for group in groups])).run()


def _extend_joins(function: VertexFunction, wide: list[Wide]) -> list[Wide]:
    """Extend joins to biases and sums that read all members of a join in the same way."""
    nodes, reader_of = function.nodes, _find_only_readers(function)
    known = list(wide)
    while known:
        join = known.pop()
        above = tuple(reader_of[i] for i in join.members if i in reader_of)
        if len(above) < len(join.members):
            continue
        parts = (
            [join] if _are_biases(nodes, above) else _find_summands(nodes, above, wide, reader_of)
        )
        if parts:
            grown = Wide(above, tuple(parts))
            wide = [w for w in wide if w not in parts] + [grown]
            known = [w for w in known if w not in parts] + [grown]
    return wide


def _find_only_readers(function: VertexFunction) -> Mapping[int, int]:
    """Return the reader of every value that only one node, and nothing else, reads."""
    results = function.results
    consumers = find_consumers(function.nodes, range(len(function.nodes)))
    return {i: k[0] for i, k in enumerate(consumers) if len(k) == 1 and i not in results}


def _are_biases(nodes: Sequence[Node], above: tuple[int, ...]) -> bool:
    names = {nodes[nodes[i].inputs[1]].name for i in above if nodes[i].op == "bias"}
    return len(names) == len(above)  # a pack contains a parameter only once


def _find_summands(
    nodes: Sequence[Node],
    above: tuple[int, ...],
    wide: Sequence[Wide],
    reader_of: Mapping[int, int],
) -> list[Wide]:
    """Return both parts of these sums if they are joined in the same order, else nothing."""
    if any(nodes[i].op != "add" for i in above):
        return []
    summands = [w for w in wide if tuple(reader_of.get(i, -1) for i in w.members) == above]
    return summands if len(summands) == 2 else []


@dataclass(slots=True)
class _Joining:
    """Rewriter of a function with joined values.

    A joined value is computed at its first member, after the operands that all members share.
    """

    function: VertexFunction
    wide: Sequence[Wide]
    builder: Builder = field(default_factory=Builder)
    made: dict[int, int] = field(default_factory=dict)
    packs: dict[str, Pack] = field(default_factory=dict)

    def run(self) -> LaidOutFunction:
        columns = {i: wide for wide in self.wide for i in wide.members}
        inside = {i for wide in self.wide for part in wide.parts for i in _list_members(part)}
        for i, node in enumerate(self.function.nodes):
            if i in columns:
                self.made[i] = self._slice_columns(columns[i], i)
            elif i not in inside and node.op != PARAMETER:
                self.made[i] = self._copy(node)
        function = self.function.replace_nodes(self.builder.nodes, self.made.__getitem__)
        return LaidOutFunction(function, tuple(self.packs.values()), {})

    def _slice_columns(self, wide: Wide, member: int) -> int:
        nodes = self.function.nodes
        before = wide.members[: wide.members.index(member)]
        start = sum(nodes[i].width for i in before)
        return self.builder.slice(self._build_whole(wide), start, nodes[member].width)

    def _build_whole(self, wide: Wide) -> int:
        """Return the value of which all members are columns; the builder reuses equal nodes."""
        first = self.function.nodes[wide.members[0]]
        parts = [self._build_whole(part) for part in wide.parts]
        if first.op == "add":
            return self.builder.add("add", *parts)
        operand = parts[0] if parts else self.made[first.inputs[0]]
        return self.builder.add(first.op, operand, self._join_parameters(wide.members))

    def _join_parameters(self, members: Sequence[int]) -> int:
        """Join the parameters of matmuls, or of biases, into one."""
        nodes = self.function.nodes
        parameters = [nodes[nodes[i].inputs[1]] for i in members]
        pack = Pack(
            tuple(ParameterPart(parameter.name, 0, parameter.shape[-1]) for parameter in parameters)
        )
        self.packs[pack.name] = pack
        shape = (*parameters[0].shape[:-1], sum(parameter.shape[-1] for parameter in parameters))
        return self.builder.add(PARAMETER, shape=shape, name=pack.name)

    def _copy(self, node: Node) -> int:
        inputs = [self._resolve_operand(i) for i in node.inputs]
        if node.op == "slice":
            return self.builder.slice(inputs[0], node.index, node.width)
        return self.builder.copy(node, inputs, node.shape)

    def _resolve_operand(self, i: int) -> int:
        node = self.function.nodes[i]
        return self._copy(node) if node.op == PARAMETER else self.made[i]


def _list_members(wide: Wide) -> list[int]:
    return [*wide.members, *(i for part in wide.parts for i in _list_members(part))]
