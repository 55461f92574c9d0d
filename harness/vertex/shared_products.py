"""Sharing of products: a child's state times a parameter, computed once for all parents.

A parent multiplies the concatenated states of its children by a matrix: concat(x_0, x_1, ...) W.
This is x_0 W_0 + x_1 W_1 + ..., where W_k are rows of W. If there are more parents than children
(many transitions of a parser read the same tokens), it takes fewer operations to compute x W_k for
every child and slot k, and to let the parents add up what they gather. A tree has fewer parents
than vertices, so there it would take more. The vertices of a mini-batch decide.

This is code motion over a graph: a value that several parents would compute equally is computed at
the vertex that determines it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dynbatch.harness.vertex.operators import PARAMETER, Node
from dynbatch.harness.vertex.program import Builder, VertexFunction, keep_ancestors

# Sums of gathered products cost memory accesses, so products move only if this factor is saved.
LEAST_SAVED = 1.25


@dataclass(frozen=True, slots=True, order=True)
class RowBlock:
    """Consecutive rows of a matrix, which become a parameter of their own.

    Attributes:
        n: number of rows.
        width: number of columns, all of the matrix.
    """

    parameter: str
    start: int
    n: int
    width: int

    @property
    def name(self) -> str:
        """Name as a parameter."""
        return f"{self.parameter}[{self.start}:{self.start + self.n}]"


@dataclass(frozen=True, slots=True, order=True)
class ChildProduct:
    """Product of a state of width `block.n` with rows of a parameter."""

    state: str
    block: RowBlock

    @property
    def name(self) -> str:
        """Name as a state."""
        return f"{self.state} @ {self.block.name}"


@dataclass(frozen=True, slots=True)
class SharedProducts:
    """Rewritten functions by type id, the parameters that they need, and their new states."""

    functions: Mapping[int, VertexFunction]
    blocks: tuple[RowBlock, ...] = ()
    states: frozenset[str] = frozenset()


def share_products(
    functions: Mapping[int, VertexFunction], n_vertices: Mapping[int, int]
) -> SharedProducts:
    """Move products of gathered states to the vertices that scatter them, where that saves work.

    Args:
        functions: the functions by type id.
        n_vertices: number of vertices of each type in a typical mini-batch.
    """
    by_type = {t: _find_products(function) for t, function in functions.items()}
    moved = _select_products(functions, by_type, n_vertices)
    if not moved:
        return SharedProducts(functions)
    rewritten = {
        t: _scatter_products(_gather_products(function, by_type[t], moved), moved)
        for t, function in functions.items()
    }
    blocks = tuple(sorted({product.block for product in moved}))
    return SharedProducts(rewritten, blocks, frozenset(product.name for product in moved))


Summands = Mapping[
    int, tuple[tuple[int, ChildProduct], ...]
]  # matmul -> (slot, product) of each child


def _find_products(function: VertexFunction) -> Summands:
    """Find matmuls of nothing but gathered states."""
    summands: dict[int, tuple[tuple[int, ChildProduct], ...]] = {}
    for i, node in enumerate(function.nodes):
        if node.op != "matmul" or len(node.shape) != 1:
            continue
        x, weight = (function.nodes[k] for k in node.inputs)
        parts = [function.nodes[k] for k in x.inputs] if x.op == "concat" else [x]
        if all(part.op == "gather" for part in parts):
            summands[i] = tuple(_split_rows(parts, weight))
    return summands


def _split_rows(parts: Sequence[Node], weight: Node) -> Iterable[tuple[int, ChildProduct]]:
    start = 0
    for part in parts:
        block = RowBlock(weight.name, start, part.width, weight.shape[1])
        yield part.index, ChildProduct(part.name, block)
        start += part.width


def _select_products(
    functions: Mapping[int, VertexFunction],
    by_type: Mapping[int, Summands],
    n_vertices: Mapping[int, int],
) -> frozenset[ChildProduct]:
    """Select the products that the vertices of a state compute, parameter by parameter."""
    n_scattered = Counter[str]()
    for t, function in functions.items():
        for state, _ in function.scatter:
            n_scattered[state] += n_vertices.get(t, 0)
    n_rows = Counter[str]()  # multiplied by the parents, by parameter
    products: dict[str, set[ChildProduct]] = {}
    for t, summands in by_type.items():
        for of_children in summands.values():
            for _, product in of_children:
                products.setdefault(product.block.parameter, set()).add(product)
                n_rows[product.block.parameter] += n_vertices.get(t, 0) * product.block.n
    moved: set[ChildProduct] = set()
    for parameter, own in products.items():
        n_moved = sum(n_scattered[product.state] * product.block.n for product in own)
        if n_rows[parameter] > LEAST_SAVED * n_moved:
            moved |= own
    return frozenset(moved)


def _gather_products(
    function: VertexFunction, summands: Summands, moved: frozenset[ChildProduct]
) -> VertexFunction:
    """Return the function of a parent, which adds up gathered products."""
    replaced = {
        i: of_children
        for i, of_children in summands.items()
        if all(product in moved for _, product in of_children)
    }
    if not replaced:
        return function
    builder, new = Builder(), dict[int, int]()
    for i, node in enumerate(function.nodes):
        if i in replaced:
            gathered = [
                builder.add("gather", shape=node.shape, name=product.name, index=slot)
                for slot, product in replaced[i]
            ]
            new[i] = gathered[0] if len(gathered) == 1 else builder.add("sum", *gathered)
        else:
            new[i] = builder.copy(node, [new[k] for k in node.inputs], node.shape)
    return _remove_unused(function.replace_nodes(builder.nodes, new.__getitem__))


def _remove_unused(function: VertexFunction) -> VertexFunction:
    """Return the function without operators that no result needs; unused gathers would be read."""
    nodes, new = keep_ancestors(function.nodes, function.results)
    return function.replace_nodes(nodes, new.__getitem__)


def _scatter_products(function: VertexFunction, moved: frozenset[ChildProduct]) -> VertexFunction:
    """Return the function of a child, which also scatters the products of its states."""
    builder, scatter = Builder(function.nodes), list(function.scatter)
    for product in sorted(moved):
        for state, value in function.scatter:
            if state == product.state:
                scatter.append((product.name, _add_product(builder, value, product.block)))
    return replace(function, nodes=tuple(builder.nodes), scatter=tuple(scatter))


def _add_product(builder: Builder, value: int, block: RowBlock) -> int:
    shape = (block.n, block.width)
    return builder.add("matmul", value, builder.add(PARAMETER, shape=shape, name=block.name))
