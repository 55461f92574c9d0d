"""Float64 reference in NumPy: evaluates one vertex at a time, in program order.

It defines correct results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Model, trace_functions
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.vertex.autodiff import Gradient, differentiate
from dynbatch.harness.vertex.operators import EDGE, LAYER_NORM_EPSILON, OPERATORS, Node
from dynbatch.harness.vertex.program import VertexFunction

Array = NDArray[np.float64]
Values = dict[int, Any]
Watch = Callable[[str, Node, int, Any], None]  # arguments: function, operator, vertex, value
# Outer products that are added to a gradient at once: adding each alone takes most of the time.
N_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class ReferenceResult:
    """Reference results of a mini-batch.

    Attributes:
        loss: sum over the mini-batch.
        outputs: (k, d), in the order of MiniBatch.outputs.
        gradients: dense gradients of the summed loss, by parameter; empty in mode "infer".
    """

    loss: float
    outputs: Array
    gradients: Mapping[str, Array]


def run_reference(
    model: Model,
    weights: Mapping[str, NDArray[Any]],
    instances: Sequence[Any],
    mode: str,
    relu_shift: float = 0.0,
    watch: Watch | None = None,
) -> ReferenceResult:
    """Evaluate loss, outputs and (mode "train") gradients of a mini-batch in float64.

    Args:
        relu_shift: added to the inputs of each relu, as a fraction of the largest absolute input of
            its vertex; it shows which results could change through rounding there.
        watch: called with every value after it is computed.

    Raises:
        ScheduleError: if the mini-batch has no value for a pull.
    """
    return _Reference(model, weights, model.mini_batch(instances), relu_shift, watch).run(mode)


def has_relu(model: Model) -> bool:
    """Return True if the model has a relu, whose gradient entries can jump through rounding."""
    functions = trace_functions(model).values()
    return any(node.op == "relu" for function in functions for node in function.nodes)


def _compute_sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


def _pick(logits: Array, label: int) -> Array:
    top = logits.max()
    return np.array([top + np.log(np.exp(logits - top).sum()) - logits[label]])


def _compute_pick_gradient(logits: Array, label: int, dy: Array) -> Array:
    probabilities = np.exp(logits - logits.max())
    probabilities /= probabilities.sum()
    probabilities[label] -= 1.0
    return np.asarray(probabilities * dy)


def _score_heads(q: Array, k: Array, n_heads: int) -> Array:
    scores = np.einsum("...ihd,...jhd->...hij", _cut(q, n_heads), _cut(k, n_heads))
    return np.asarray(scores.reshape(*scores.shape[:-3], -1, scores.shape[-1]))


def _mix_heads(p: Array, v: Array, n_heads: int) -> Array:
    weights = p.reshape(*p.shape[:-2], n_heads, -1, p.shape[-1])
    mixed = np.einsum("...hij,...jhd->...ihd", weights, _cut(v, n_heads))
    return np.asarray(mixed.reshape(*mixed.shape[:-2], -1))


def _cut(x: Array, n_heads: int) -> Array:
    return x.reshape(*x.shape[:-1], n_heads, -1)


def _compute_softmax(x: Array) -> Array:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def _compute_layer_norm(x: Array, gain: Array) -> Array:
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centered).mean(axis=-1, keepdims=True)
    return np.asarray(gain * centered / np.sqrt(variance + LAYER_NORM_EPSILON))


# Vertex values have the node's shape; edge values have one row per child as first dimension.
KERNELS: dict[str, Callable[..., Any]] = {
    "matmul": lambda node, x, w: x @ w,
    "matmul_transposed": lambda node, x, w: x @ w.T,
    "apply": lambda node, x, matrix: np.einsum("...k,...kn->...n", x, matrix),
    "apply_transposed": lambda node, dy, matrix: np.einsum("...n,...kn->...k", dy, matrix),
    "outer": lambda node, x, dy: x[..., :, None] * dy[..., None, :],
    "bias": lambda node, x, b: x + b,
    "lookup": lambda node, table, row: table[row],
    "add": lambda node, x, y: x + y,
    "sum": lambda node, *parts: np.sum(parts, axis=0),
    "sub": lambda node, x, y: x - y,
    "mul": lambda node, x, y: x * y,
    "div": lambda node, x, y: x / y,
    "neg": lambda node, x: -x,
    "scale": lambda node, x: node.value * x,
    "shift": lambda node, x: node.value + x,
    "sigmoid": lambda node, x: _compute_sigmoid(x),
    "tanh": lambda node, x: np.tanh(x),
    "exp": lambda node, x: np.exp(x),
    "log": lambda node, x: np.log(x),
    "square": lambda node, x: x * x,
    "sqrt": lambda node, x: np.sqrt(x),
    "sigmoid_gradient": lambda node, dy, y: dy * y * (1.0 - y),
    "tanh_gradient": lambda node, dy, y: dy * (1.0 - y * y),
    "relu_gradient": lambda node, dy, y: dy * (y > 0),
    "concat": lambda node, *parts: np.concatenate(parts, axis=-1),
    "slice": lambda node, x: x[..., node.index : node.index + node.width],
    "sum_elements": lambda node, x: x.sum(axis=-1, keepdims=True),
    "expand": lambda node, x: np.repeat(x, node.width, axis=-1),
    "score_heads": lambda node, q, k: _score_heads(q, k, node.index),
    "mix_heads": lambda node, p, v: _mix_heads(p, v, node.index),
    "softmax": lambda node, x: _compute_softmax(x),
    "layer_norm": lambda node, x, gain: _compute_layer_norm(x, gain),
    "sum_edges": lambda node, x: x.sum(axis=0),
    "pick_neg_log_softmax": lambda node, x, label: _pick(x, label),
    "softmax_minus_one_hot": lambda node, x, label, dy: _compute_pick_gradient(x, label, dy),
}


@dataclass(slots=True)
class _Reference:
    model: Model
    weights: Mapping[str, NDArray[Any]]
    batch: MiniBatch
    relu_shift: float
    watch: Watch | None
    states: list[dict[str, Array]] = field(init=False)
    state_gradients: list[dict[str, Array]] = field(init=False)
    parameter_gradients: dict[str, Array] = field(init=False)
    products: dict[str, list[tuple[Array, Array]]] = field(default_factory=dict, init=False)
    parameters: dict[str, Array] = field(init=False)

    def run(self, mode: str) -> ReferenceResult:
        functions = trace_functions(self.model)
        types = [functions.get(name) for name in self.batch.graph.type_names]
        n = self.batch.graph.n_vertices
        self.parameters = {name: w.astype(np.float64) for name, w in self.weights.items()}
        self.states = [{} for _ in range(n)]
        forward = []
        for vertex, vertex_type in enumerate(self.batch.graph.types):
            function = types[vertex_type]
            assert function is not None  # a vertex of an unknown type cannot be traced
            args = self.batch.graph.select_args(vertex).tolist()
            forward.append(self._forward(function, vertex, args))
        output = functions["output"]
        values = [self._forward(output, v, [v]) for v in self.batch.outputs]
        loss = sum(float(v[output.loss][0]) for v in values) if output.loss is not None else 0.0
        assert output.push is not None
        outputs = np.stack([v[output.push] for v in values])
        if mode == "infer":
            return ReferenceResult(loss, outputs, {})
        self._start_backward(n)
        gradients = {name: differentiate(f) for name, f in functions.items()}
        for vertex, value in zip(self.batch.outputs, values, strict=True):
            self._backward("output", gradients["output"], value, vertex, [vertex])
        for vertex in reversed(range(n)):
            name = self.batch.graph.type_names[self.batch.graph.types[vertex]]
            args = self.batch.graph.select_args(vertex).tolist()
            self._backward(name, gradients[name], forward[vertex], vertex, args)
        for name in list(self.products):
            self._add_products(name)
        return ReferenceResult(loss, outputs, self.parameter_gradients)

    def _start_backward(self, n: int) -> None:
        self.state_gradients = [
            {name: np.zeros(width) for name, width in self.model.state.items()} for _ in range(n)
        ]
        self.parameter_gradients = {k: np.zeros_like(w) for k, w in self.parameters.items()}

    def _forward(self, function: VertexFunction, vertex: int, args: Sequence[int]) -> Values:
        values: Values = {}
        for i, node in enumerate(function.nodes):
            values[i] = self._evaluate(node, values, vertex, args)
            if self.watch is not None:
                self.watch(function.name, node, vertex, values[i])
        for state, node_id in function.scatter:
            self.states[vertex][state] = values[node_id].reshape(-1)
        return values

    def _evaluate(self, node: Node, values: Values, vertex: int, args: Sequence[int]) -> Any:
        if node.op == "gather":
            return self.states[args[node.index]][node.name].reshape(node.shape)
        if node.op == "gather_each":
            rows = [self.states[a][node.name] for a in args]
            return np.stack(rows).reshape(-1, *node.shape) if rows else np.zeros((0, *node.shape))
        if node.op == "pull":
            return int(self.batch.get_pull(node.name)[vertex])
        if node.op == "relu":
            x = values[node.inputs[0]]
            return np.maximum(x + self.relu_shift * np.max(np.abs(x), initial=0.0), 0.0)
        if node.op == "parameter":
            return self.parameters[node.name]
        if node.op in ("zeros", "ones"):
            edges = (len(args),) if node.domain == EDGE else ()
            return np.full((*edges, *node.shape), float(node.op == "ones"))
        if node.op == "state_gradient":
            return self.state_gradients[vertex][node.name].reshape(node.shape)
        if node.op == "spread":
            return np.repeat(values[node.inputs[0]][None], len(args), axis=0)
        return KERNELS[node.op](node, *(values[i] for i in node.inputs))

    def _backward(
        self, name: str, gradient: Gradient, values: Values, vertex: int, args: Sequence[int]
    ) -> None:
        for i in range(gradient.n_forward, len(gradient.nodes)):
            node = gradient.nodes[i]
            is_sink = OPERATORS[node.op].sink
            if is_sink:
                self._accumulate(node, [values[k] for k in node.inputs])
            else:
                values[i] = self._evaluate(node, values, vertex, args)
            if self.watch is not None:
                value = self.parameter_gradients[node.name] if is_sink else values[i]
                self.watch(f"gradient of {name}", node, vertex, value)
        for source, i in gradient.gathers:
            gather = gradient.nodes[source]
            if gather.op == "gather":
                self.state_gradients[args[gather.index]][gather.name] += values[i].reshape(-1)
            else:
                for row, child in zip(values[i], args, strict=True):
                    self.state_gradients[child][gather.name] += row.reshape(-1)

    def _accumulate(self, node: Node, operands: list[Any]) -> None:
        total = self.parameter_gradients[node.name]
        if node.op == "outer_sum":
            x, dy = (operand.reshape(-1, operand.shape[-1]) for operand in operands)
            products = self.products.setdefault(node.name, [])
            products.append((x, dy))
            if self.watch is not None or len(products) == N_AT_ONCE:
                self._add_products(node.name)
        elif node.op == "vertex_sum":
            total += operands[0].reshape(-1, *node.shape).sum(axis=0)
        else:
            total[operands[0]] += operands[1]

    def _add_products(self, name: str) -> None:
        xs, dys = zip(*self.products.pop(name), strict=True)
        self.parameter_gradients[name] += np.concatenate(xs).T @ np.concatenate(dys)
