"""A vertex function of any number of children, written out for a given number.

A value of an edge becomes one value a child, a value spread to the edges is the vertex's own, and a
sum over the edges is one sum of all of them, as a program that builds its graph operator by
operator has it (DyNet's n-ary sum).
"""

from __future__ import annotations

from harness.vertex.operators import EDGE, Node
from harness.vertex.program import Builder, VertexFunction


def is_variadic(function: VertexFunction) -> bool:
    """Whether a function computes anything for each of its children."""
    return any(node.domain == EDGE for node in function.nodes)


def unroll(function: VertexFunction, n_edges: int) -> VertexFunction:
    """Write a vertex function out for a vertex of n_edges children.

    The sum over one child is that child's value; over none it is zero.
    """
    b = Builder()
    at: list[tuple[int, ...]] = []  # of every node: the node in its place, of an edge's one a child
    for node in function.nodes:
        if node.domain == EDGE and node.op != "spread":
            at.append(tuple(_of_child(b, node, at, k) for k in range(n_edges)))
        elif node.op == "spread":
            at.append(at[node.inputs[0]] * n_edges)
        elif node.op == "sum_edges":
            at.append((_summed(b, node, at[node.inputs[0]]),))
        else:
            at.append((_copied(b, node, tuple(at[k][0] for k in node.inputs)),))
    return VertexFunction(
        function.name,
        tuple(b.nodes),
        tuple((state, at[i][0]) for state, i in function.scatter),
        None if function.push is None else at[function.push][0],
        None if function.loss is None else at[function.loss][0],
    )


def _of_child(b: Builder, node: Node, at: list[tuple[int, ...]], child: int) -> int:
    if node.op == "gather_each":
        return b.add("gather", shape=node.shape, name=node.name, index=child)
    inputs = (at[k] for k in node.inputs)
    return _copied(b, node, tuple(ids[child] if len(ids) > 1 else ids[0] for ids in inputs))


def _copied(b: Builder, node: Node, inputs: tuple[int, ...]) -> int:
    if node.op == "slice":
        return b.slice(inputs[0], node.index, node.width)
    return b.add(
        node.op, *inputs, shape=node.shape, name=node.name, index=node.index, value=node.value
    )


def _summed(b: Builder, node: Node, parts: tuple[int, ...]) -> int:
    if not parts:
        return b.add("zeros", shape=node.shape)
    return parts[0] if len(parts) == 1 else b.add("sum", *parts)
