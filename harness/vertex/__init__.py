"""How to write a vertex function; its operators, gradients and stages."""

from harness.vertex.tracing import (
    Symbol,
    VertexTracer,
    exp,
    expand,
    log,
    pick_neg_log_softmax,
    relu,
    sigmoid,
    spread,
    sqrt,
    square,
    sum_edges,
    sum_elements,
    tanh,
)

__all__ = [
    "Symbol",
    "VertexTracer",
    "exp",
    "expand",
    "log",
    "pick_neg_log_softmax",
    "relu",
    "sigmoid",
    "spread",
    "sqrt",
    "square",
    "sum_edges",
    "sum_elements",
    "tanh",
]
