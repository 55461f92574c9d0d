"""How to write a vertex function; its operators, gradients and stages."""

from harness.vertex.attention import gelu, layer_norm, mix_heads, score_heads, softmax
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
    "gelu",
    "layer_norm",
    "log",
    "mix_heads",
    "pick_neg_log_softmax",
    "relu",
    "score_heads",
    "sigmoid",
    "softmax",
    "spread",
    "sqrt",
    "square",
    "sum_edges",
    "sum_elements",
    "tanh",
]
