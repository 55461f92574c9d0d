"""Tracing of vertex functions: symbols, the tracer for a model's methods, and attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.vertex.operators import EDGE, Shape, check_vectors
from dynbatch.harness.vertex.program import Builder, VertexFunction


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """Value inside a vertex function; arithmetic on it appends operators."""

    builder: Builder
    node: int

    @property
    def shape(self) -> Shape:
        """Shape for one vertex."""
        return self.builder[self.node].shape

    def _apply_binary(self, op: str, other: Symbol) -> Symbol:
        b = self.builder
        if op == "add" and b[self.node].op == "parameter" != b[other.node].op:
            return other._apply_binary(op, self)
        if b[other.node].op == "parameter":
            if op != "add" or other.shape != self.shape[-1:]:
                raise ConfigError(
                    f"cannot {op} a parameter of shape {other.shape} to {self.shape};"
                    " add a bias as wide as a row"
                )
            op = "bias"
        return Symbol(b, b.add(op, self.node, other.node))

    def __add__(self, other: Symbol | float) -> Symbol:
        if isinstance(other, Symbol):
            return self._apply_binary("add", other)
        return _apply_unary(self, "shift", float(other))

    def __sub__(self, other: Symbol | float) -> Symbol:
        if isinstance(other, Symbol):
            return self._apply_binary("sub", other)
        return _apply_unary(self, "shift", -float(other))

    def __rsub__(self, other: float) -> Symbol:
        return -self + other

    def __mul__(self, other: Symbol | float) -> Symbol:
        if isinstance(other, Symbol):
            return self._apply_binary("mul", other)
        return _apply_unary(self, "scale", float(other))

    __radd__ = __add__
    __rmul__ = __mul__

    def __truediv__(self, other: Symbol | float) -> Symbol:
        if isinstance(other, Symbol):
            return self._apply_binary("div", other)
        return _apply_unary(self, "scale", 1.0 / other)

    def __neg__(self) -> Symbol:
        return _apply_unary(self, "neg")

    def __matmul__(self, weight: Symbol) -> Symbol:
        """Multiply by a parameter, row by row; or a vector by a matrix of the vertex."""
        b = self.builder
        op = "matmul" if b[weight.node].op == "parameter" else "apply"
        return Symbol(b, b.add(op, self.node, weight.node))


def _apply_unary(x: Symbol, op: str, value: float = 0.0) -> Symbol:
    return Symbol(x.builder, x.builder.add(op, x.node, value=value))


# Elementwise functions.
sigmoid = partial(_apply_unary, op="sigmoid")  # 1 / (1 + exp(-x))
tanh = partial(_apply_unary, op="tanh")
relu = partial(_apply_unary, op="relu")  # max(x, 0)
exp = partial(_apply_unary, op="exp")
log = partial(_apply_unary, op="log")
square = partial(_apply_unary, op="square")
sqrt = partial(_apply_unary, op="sqrt")

# Other functions of one value.
softmax = partial(_apply_unary, op="softmax")  # of every row of a matrix
sum_elements = partial(_apply_unary, op="sum_elements")  # of one vertex: shape (1,)
sum_edges = partial(_apply_unary, op="sum_edges")  # at their vertex; 0 without children


def expand(x: Symbol, width: int) -> Symbol:
    """Repeat a value of shape (1,) to (width,).

    Raises:
        ConfigError: for any other shape.
    """
    if x.shape != (1,):
        raise ConfigError(f"expand: expected shape (1,), got {x.shape}")
    return Symbol(x.builder, x.builder.add("expand", x.node, shape=(width,)))


def spread(x: Symbol) -> Symbol:
    """Copy a value of the vertex to each of its incoming edges."""
    return Symbol(x.builder, x.builder.add("spread", x.node, domain=EDGE))


def pick_neg_log_softmax(logits: Symbol, label: Symbol) -> Symbol:
    """Return -log softmax(logits)[label], shape (1,)."""
    b = logits.builder
    return Symbol(b, b.add("pick_neg_log_softmax", logits.node, label.node))


@dataclass(frozen=True, slots=True)
class Child:
    """State that a child scattered; its tensors are attributes, as vectors."""

    builder: Builder
    state: Mapping[str, int]
    slot: int | None  # None: every child, with one row per edge

    def __getattr__(self, name: str) -> Symbol:
        if name not in self.state:
            raise AttributeError(f"unknown state {name}; choose one of {', '.join(self.state)}")
        return self._gather(name, (self.state[name],))

    def as_matrix(self, name: str, n_rows: int) -> Symbol:
        """Return a state as a row-major matrix.

        Raises:
            ConfigError: if its width is not a multiple of n_rows, or if the same function also
                gathers it in another shape.
        """
        width = self.state.get(name, 0)
        if not width or n_rows < 1 or width % n_rows:
            raise ConfigError(
                f"state {name}: expected a width divisible by {n_rows} rows, got {width}"
            )
        return self._gather(name, (n_rows, width // n_rows))

    def _gather(self, name: str, shape: Shape) -> Symbol:
        gathers = [node for node in self.builder.nodes if node.op in ("gather", "gather_each")]
        if any(node.name == name and node.shape != shape for node in gathers):
            raise ConfigError(f"state {name} is gathered in two shapes; choose one")
        if self.slot is None:
            node = self.builder.add("gather_each", shape=shape, name=name, domain=EDGE)
        else:
            node = self.builder.add("gather", shape=shape, name=name, index=self.slot)
        return Symbol(self.builder, node)


class VertexTracer:
    """Interface of vertex functions: gather, pull, read parameters, compute, scatter, push."""

    def __init__(self, state: Mapping[str, int], parameters: Mapping[str, Shape]) -> None:
        self._state, self._parameters = state, parameters
        self.builder = Builder()
        self.scattered: dict[str, int] = {}
        self.pushed: int | None = None
        self.loss: int | None = None

    def gather(self, slot: int) -> Child:
        """Return the state of the child in one slot.

        Raises:
            ConfigError: for a negative slot.
        """
        if slot < 0:
            raise ConfigError(f"expected a slot of at least 0, got {slot}")
        return Child(self.builder, self._state, slot)

    def gather_each(self) -> Child:
        """Return the states of all children, in any number; reduce them with sum_edges."""
        return Child(self.builder, self._state, None)

    def pull(self, name: str) -> Symbol:
        """Return an external integer input of this vertex."""
        return Symbol(self.builder, self.builder.add("pull", shape=(), name=name))

    def parameter(self, name: str) -> Symbol:
        """Return a shared parameter.

        Raises:
            ConfigError: if the model does not declare it.
        """
        if name not in self._parameters:
            raise ConfigError(
                f"parameter {name} is not declared; choose one of {', '.join(self._parameters)}"
            )
        shape = self._parameters[name]
        return Symbol(self.builder, self.builder.add("parameter", shape=shape, name=name))

    def lookup(self, table: str, row: Symbol) -> Symbol:
        """Return one row of a parameter table."""
        b = self.builder
        return Symbol(b, b.add("lookup", self.parameter(table).node, row.node))

    def zeros(self, width: int) -> Symbol:
        """Return a constant zero vector."""
        return Symbol(self.builder, self.builder.add("zeros", shape=(width,)))

    def concat(self, *parts: Symbol) -> Symbol:
        """Concatenate vectors."""
        return Symbol(self.builder, self.builder.add("concat", *(part.node for part in parts)))

    def split(self, x: Symbol, n_parts: int) -> list[Symbol]:
        """Split a vector into equal parts.

        Raises:
            ConfigError: if its width is not a multiple of n_parts.
        """
        whole = x.builder[x.node].width
        if n_parts < 1 or whole % n_parts:
            raise ConfigError(f"cannot split a vector of width {whole} into {n_parts} equal parts")
        width = whole // n_parts
        return [
            Symbol(x.builder, x.builder.slice(x.node, k * width, width)) for k in range(n_parts)
        ]

    def slice_columns(self, x: Symbol, start: int, width: int) -> Symbol:
        """Return some columns of a vector.

        Raises:
            ConfigError: if the vector does not have these columns.
        """
        return Symbol(x.builder, x.builder.slice(x.node, start, width))

    def scatter(self, **values: Symbol) -> None:
        """Write states for the parents; matrices are stored row-major.

        Raises:
            ConfigError: if a state is not declared or has another width.
        """
        for name, value in values.items():
            width = self.builder[value.node].width
            if self._state.get(name) != width:
                raise ConfigError(
                    f"scatter: expected states {dict(self._state)}, got {name} of width {width}"
                )
            self.scattered[name] = value.node

    def push(self, output: Symbol, loss: Symbol | None = None) -> None:
        """Push a vector as output, with its part of the loss (shape (1,))."""
        check_vectors([self.builder[output.node]])
        self.pushed = output.node
        if loss is not None:
            if loss.shape != (1,):
                raise ConfigError(f"expected a loss of shape (1,), got {loss.shape}")
            self.loss = loss.node


class Declares(Protocol):
    """Attributes of a model that tracing requires."""

    @property
    def vertex_types(self) -> tuple[str, ...]: ...
    @property
    def state(self) -> Mapping[str, int]: ...


def trace(model: Declares, name: str, parameters: Mapping[str, Shape]) -> VertexFunction:
    """Run the model's method `name` once on symbols and return the vertex function."""
    tracer = VertexTracer(model.state, parameters)
    getattr(model, name)(tracer)
    return VertexFunction(
        name=name,
        nodes=tuple(tracer.builder.nodes),
        scatter=tuple(tracer.scattered.items()),
        push=tracer.pushed,
        loss=tracer.loss,
    )


# --- matrices with one row per token, for encoders; inference only ---
# Vaswani et al., "Attention is all you need", NIPS 2017, section 3.2; layer normalization is that
# of Ba, Kiros and Hinton, 2016.


def score_heads(q: Symbol, k: Symbol, n_heads: int) -> Symbol:
    """Return q k^T of every head: (n_heads * rows of q, rows of k).

    A head is a group of columns. Heads come one after the other, each with all rows.

    Raises:
        ConfigError: for operands that are not matrices of equal width, or not divisible into heads.
    """
    (n_q, width), (n_k, other) = _check_matrix(q), _check_matrix(k)
    if width != other:
        raise ConfigError(f"expected rows of equal width, got {width} and {other}")
    _check_heads(width, n_heads)
    return _add("score_heads", q, k, (n_heads * n_q, n_k), n_heads)


def mix_heads(p: Symbol, v: Symbol, n_heads: int) -> Symbol:
    """Return p v of every head, heads in adjacent columns: (rows of p / n_heads, columns of v).

    Args:
        p: (n_heads * rows, rows of v), laid out as by score_heads.

    Raises:
        ConfigError: for operands that do not fit.
    """
    (n_p, n_weights), (n_v, width) = _check_matrix(p), _check_matrix(v)
    _check_heads(width, n_heads)
    if n_p % n_heads or n_weights != n_v:
        raise ConfigError(
            f"mix_heads: expected weights with {n_v} columns and a multiple of {n_heads} rows,"
            f" got shape {(n_p, n_weights)}"
        )
    return _add("mix_heads", p, v, (n_p // n_heads, width), n_heads)


def layer_norm(x: Symbol, gain: Symbol) -> Symbol:
    """Return gain (x - mean) / sqrt(variance + 1e-12) of every row; add a bias separately.

    Raises:
        ConfigError: unless gain is a parameter as wide as a row.
    """
    return Symbol(x.builder, x.builder.add("layer_norm", x.node, gain.node))


def gelu(x: Symbol) -> Symbol:
    """Return x times the normal distribution function at x, in BERT's tanh approximation.

    Source: Hendrycks and Gimpel, "Gaussian error linear units", 2016; BERT's first release.
    """
    return 0.5 * x * (tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))) + 1.0)


def _add(op: str, x: Symbol, y: Symbol, shape: tuple[int, int], n_heads: int) -> Symbol:
    return Symbol(x.builder, x.builder.add(op, x.node, y.node, shape=shape, index=n_heads))


def _check_matrix(x: Symbol) -> tuple[int, int]:
    if len(x.shape) != 2:
        raise ConfigError(f"expected a matrix, got shape {x.shape}")
    n_rows, n_columns = x.shape
    return n_rows, n_columns


def _check_heads(width: int, n_heads: int) -> None:
    if n_heads < 1 or width % n_heads:
        raise ConfigError(f"cannot split {width} columns into {n_heads} equal heads")
