"""Constant folding across lookups: matmuls of looked-up rows with fixed weights.

In inference no parameter changes. A row of E times W is a row of E W, which is computed once, so a
lookup in the product replaces the matmul.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dynbatch.harness.vertex.operators import Node
from dynbatch.harness.vertex.program import VertexFunction


@dataclass(frozen=True, slots=True)
class FoldedTable:
    """Table that is the product of two parameters."""

    table: str
    weight: str

    @property
    def name(self) -> str:
        """Name of the product as a parameter."""
        return f"{self.table} @ {self.weight}"


def fold_tables(function: VertexFunction) -> tuple[VertexFunction, tuple[FoldedTable, ...]]:
    """Replace every matmul of a looked-up row with a parameter; return the tables that it needs.

    Lookups that become unused remain, but no stage runs them.
    """
    nodes: list[Node] = []
    new_id: list[int] = []
    folded: dict[str, FoldedTable] = {}
    for node in function.nodes:
        looked_up = function.nodes[node.inputs[0]] if node.op == "matmul" else None
        if looked_up is not None and looked_up.op == "lookup":
            table, row = looked_up.inputs
            weight = function.nodes[node.inputs[1]]
            product = FoldedTable(function.nodes[table].name, weight.name)
            folded[product.name] = product
            shape = (function.nodes[table].shape[0], weight.shape[1])
            # A separate node for every use, as the tracer also creates one for every mention.
            nodes.append(Node("parameter", shape=shape, domain="parameter", name=product.name))
            node = replace(node, op="lookup", inputs=(len(nodes) - 1, new_id[row]))
        else:
            node = replace(node, inputs=tuple(new_id[k] for k in node.inputs))
        nodes.append(node)
        new_id.append(len(nodes) - 1)
    if not folded:
        return function, ()
    return function.replace_nodes(nodes, new_id.__getitem__), tuple(folded.values())
