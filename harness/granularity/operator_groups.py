"""Which nodes of a vertex function are one node in DyNet: affine transforms and parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from harness.vertex.operators import OPERATORS, Node
from harness.vertex.program import VertexFunction, ancestors

SOURCES = ("gather", "pull", "parameter")


def operator_groups(function: VertexFunction) -> Mapping[int, tuple[int, ...]]:
    """Each operator of a function and the nodes it stands for, itself last; unread ones left out.

    A bias takes in the products that it is added to, or their sum (b + W x + U y, DyNet's
    affine_transform), where nobody else reads them; a bias on zeros is a parameter.
    """
    nodes = function.nodes
    outside = [*(i for _, i in function.scatter), function.push, function.loss]
    results = [i for i in outside if i is not None]
    used = sorted(ancestors(nodes, results))
    readers = Counter([k for i in used for k in nodes[i].inputs] + results)
    groups = {
        i: (*_behind_bias(nodes, readers, nodes[i]), i) for i in used if nodes[i].op not in SOURCES
    }
    taken_in = Counter(k for group in groups.values() for k in group[:-1])
    return {i: group for i, group in groups.items() if taken_in[i] < readers[i]}


def _behind_bias(nodes: tuple[Node, ...], readers: Mapping[int, int], node: Node) -> list[int]:
    if node.op != "bias":
        return []
    target = node.inputs[0]
    return [target] if nodes[target].op == "zeros" else _products(nodes, readers, target)


def _products(nodes: tuple[Node, ...], readers: Mapping[int, int], i: int) -> list[int]:
    """Products that sum up to node i, and their additions; none where it is anything else."""
    operator = OPERATORS[nodes[i].op]
    if readers[i] != 1:
        return []
    if operator.heavy and operator.parameter_at is not None:
        return [i]
    parts = [_products(nodes, readers, k) for k in nodes[i].inputs] if nodes[i].op == "add" else []
    return [*(k for part in parts for k in part), i] if parts and all(parts) else []
