"""Groups of elementwise operators that become one kernel, and the rewrite that helps them.

Source: Xu et al., "Cavs", ATC 2018, Sec. 3.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from harness.engine.lowering.absorption import Absorption
from harness.errors import ScheduleError
from harness.vertex.autodiff import Gradient
from harness.vertex.operators import OPERATORS, Node
from harness.vertex.program import VertexFunction


def sink_slices(nodes: Sequence[Node]) -> tuple[tuple[Node, ...], tuple[int, ...]]:
    """Replace slice(x + bias) by slice(x) + slice(bias), so that the sum joins the gate's kernel.

    Returns the new nodes and the new id of every old node. A sliced bias starts at column `index`
    of its parameter.
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


def with_sunk_slices(
    function: VertexFunction, gradient: Gradient | None
) -> tuple[VertexFunction, Gradient | None]:
    """A function, and its gradient where there is one, with all slices sunk."""
    nodes, moved = sink_slices(function.nodes if gradient is None else gradient.nodes)

    def new_id(node: int | None) -> int | None:
        return None if node is None else moved[node]

    n_forward = len(function.nodes)
    function = replace(
        function,
        nodes=nodes if gradient is None else nodes[: moved[n_forward - 1] + 1],
        scatter=tuple((state, moved[i]) for state, i in function.scatter),
        push=new_id(function.push),
        loss=new_id(function.loss),
    )
    if gradient is not None:
        gradient = Gradient(
            nodes,
            len(function.nodes),
            tuple((moved[a], moved[b]) for a, b in gradient.gathers),
            tuple(moved[i] for i in gradient.sinks),
        )
    return function, gradient


def order_stage(
    nodes: Sequence[Node],
    stage: Sequence[int],
    absorption: Absorption,
    *,
    fuse: bool,
) -> list[tuple[int, ...]]:
    """Order the nodes of one stage; with `fuse`, join elementwise neighbours of equal width.

    Returns tuples of node ids; a tuple of several is one fused group. Other operators run as early
    as they can, so that groups grow.
    """
    inside = set(stage)
    pending = list(stage)
    done: set[int] = set()

    def available(i: int) -> bool:
        if nodes[i].op == "slice":
            return available(nodes[i].inputs[0])
        return i in done or i not in inside

    def ready(i: int) -> bool:
        first = absorption.after.get(i)
        return all(map(available, nodes[i].inputs)) and (first is None or available(first))

    def fusible(i: int) -> bool:
        return fuse and OPERATORS[nodes[i].op].elementwise and i not in absorption.merged

    ordered: list[tuple[int, ...]] = []
    while pending:
        alone = [i for i in pending if not fusible(i) and ready(i)]
        groups: list[tuple[int, ...]] = [(i,) for i in alone] or [
            _grow_group(nodes, pending, fusible, available)
        ]
        if not groups[0]:
            raise ScheduleError(f"operators {pending} wait for each other; report this function")
        ordered += groups
        done.update(i for group in groups for i in group)
        pending = [i for i in pending if i not in done]
    return ordered


def _grow_group(
    nodes: Sequence[Node],
    pending: Sequence[int],
    fusible: Callable[[int], bool],
    available: Callable[[int], bool],
) -> tuple[int, ...]:
    group: list[int] = []
    for i in pending:
        node = nodes[i]
        same = not group or (node.shape, node.domain) == (
            nodes[group[0]].shape,
            nodes[group[0]].domain,
        )
        if fusible(i) and same and all(k in group or available(k) for k in node.inputs):
            group.append(i)
    return tuple(group)
