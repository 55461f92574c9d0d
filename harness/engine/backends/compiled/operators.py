"""The operators of a vertex function that are no elementwise arithmetic, as lines of code."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.engine.backends.compiled.arguments import PullOf
from harness.engine.backends.compiled.elementwise import EXPRESSIONS
from harness.engine.backends.compiled.places import BLAS, Places, of
from harness.engine.lowering.gathers import APPLIED
from harness.engine.lowering.plan import state_buffer
from harness.vertex.operators import Node

LAUNCH = "n_launches += 1"
# Operators whose kernel takes the rows of its operands and of its result, and nothing else.
ROW_BY_ROW = (
    *("pick_neg_log_softmax", "softmax_minus_one_hot"),
    *("sum_elements", "expand", "apply", "apply_transposed", "outer", "layer_norm"),
)
NO_PIECES = ("layer_norm",)  # of those: compiled into who calls it, which has numba's arrays for it
OF_HEADS = ("score_heads", "mix_heads")
# Operators with lines of their own: in OperatorWriter, or as steps of another kind.
OWN_LINES = (*OF_HEADS, "softmax", "zeros", "ones", "lookup", "sum_edges", "spread")
OTHER_STEPS = (
    *("gather", "gather_each", "pull", "parameter", "state_gradient", "slice", "concat"),
    *("matmul", "matmul_transposed", "outer_sum", "vertex_sum", "row_sum"),
)
# Of these, what only brings data from one place to another.
MOVING = ("zeros", "ones", "lookup", "spread")
OPERATORS = frozenset((*EXPRESSIONS, *ROW_BY_ROW, *OWN_LINES, *OTHER_STEPS))


@dataclass(slots=True)
class OperatorWriter(Places):
    """Writes each as a call of its kernel in harness.engine.cpu_kernels."""

    def write_operator(self, i: int) -> None:
        """Add the lines of node i, for the rows that are taken."""
        node = self.plan.nodes[i]
        self.lines.append(LAUNCH)
        if node.op in APPLIED and self.in_place(self.plan.refs[node.inputs[1]]):
            self._apply_in_place(i, node)
        elif node.op in ROW_BY_ROW:
            operands = [*map(self.operand, node.inputs), self.rows_of(self.plan.refs[i])]
            if node.op in NO_PIECES:
                operands = [f"array_of({operand})" for operand in operands]
            self.lines.append(f"{node.op}({', '.join(operands)})")
        elif node.op == "softmax":
            rows, target = self.operand(node.inputs[0]), self.rows_of(self.plan.refs[i])
            width = node.shape[-1]
            self.lines.append(f"softmax(array_of({rows}), {width}, array_of({target}))")
        elif node.op in OF_HEADS:
            self._of_heads(i, node)
        elif node.op in ("zeros", "ones"):
            value = float(node.op == "ones")
            out = self.place(self.plan.refs[i])
            self.lines.append(
                f"fill_block({of(out)}, {self.n(node.domain)}, {node.width}, {value})"
            )
        elif node.op == "lookup":
            self._lookup(i, node)
        elif node.op == "sum_edges":
            self._sum_edges(i, node)
        else:
            source, out = self.place(self.plan.refs[node.inputs[0]]), self.place(self.plan.refs[i])
            edges = self.edge_start()
            self.lines.append(
                f"spread_rows({of(source)}, {edges}, start, {of(out)}, n, {node.width})"
            )

    def _apply_in_place(self, i: int, node: Node) -> None:
        """Row times a child's matrix, which lies in the child's row."""
        row, matrix = node.inputs
        x, out = self.place_of_one(self.plan.refs[row]), self.place_of_one(self.plan.refs[i])
        child, _ = self.child_row(self.plan.refs[matrix])
        states = self.array_of(state_buffer(self.plan.nodes[matrix].name))
        k, width = self.plan.nodes[matrix].shape
        weight = f"reshaped(part({states}, {child}, 1), {k}, {width})"
        transposed = node.op == "apply_transposed"
        self.lines += [
            f"for m in range({self.n(node.domain)}):",
            f"    multiply({of(x)}, 1, {weight}, {transposed}, False, {of(out)}, {BLAS})",
        ]

    def _of_heads(self, i: int, node: Node) -> None:
        """Products of two values; see cpu_kernels.attention_kernels."""
        left, right = node.inputs
        found = [self.place(self.plan.refs[k]) for k in (left, right, i)]
        places = ", ".join(of(replace(one, array=f"array_of({one.array})")) for one in found)
        scratch = ", ".join(f"array_of({name})" for name in BLAS.split(", "))
        scores, rows = (i, left) if node.op == "score_heads" else (left, i)
        n_weights = self.plan.nodes[scores].shape[1]
        n_rows, width = self.plan.nodes[rows].shape
        shape = f"{self.n(node.domain)}, {node.index}, {n_rows}, {n_weights}, {width}"
        self.lines.append(f"{node.op}({places}, {shape}, {scratch})")

    def _lookup(self, i: int, node: Node) -> None:
        table, rows = (self.plan.nodes[k].name for k in node.inputs)
        out, pull = self.place(self.plan.refs[i]), self.name_of(PullOf(self.type_id, rows))
        self.lines.append(f"look_up({self.parameter(table)}, {pull}, start, {of(out)}, n)")

    def _sum_edges(self, i: int, node: Node) -> None:
        (operand,) = node.inputs
        out, edges = self.place(self.plan.refs[i]), self.edge_start()
        if operand in self.plan.refs:
            rows = self.place(self.plan.refs[operand])
            self.lines.append(
                f"sum_edge_rows({of(rows)}, {edges}, start, {of(out)}, n, {node.width})"
            )
            return
        states = self.array_of(state_buffer(self.plan.nodes[operand].name))
        target = self.rows_of(self.plan.refs[i])
        self.lines.append(f"sum_child_rows({states}, {self.index(None)}, {edges}, start, {target})")
