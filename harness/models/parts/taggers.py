"""What taggers do on top of both directions: a layer of tanh, and a classifier of every word."""

from __future__ import annotations

from harness.contracts.model import ParameterSpec
from harness.vertex import VertexTracer, pick_neg_log_softmax, tanh


def tagger_parameters(h: int, t: int, n_classes: int) -> dict[str, ParameterSpec]:
    """W_tag (2 h, t), rows forward and backward, b_tag (t,) and W_out (t, n_classes)."""
    return {
        "W_tag": ParameterSpec((2 * h, t), (2 * h) ** -0.5),
        "b_tag": ParameterSpec((t,), 0.1),
        "W_out": ParameterSpec((t, n_classes), t**-0.5),
    }


def tag(v: VertexTracer) -> None:
    """t = tanh(W_tag [h_forward; h_backward] + b_tag)."""
    both = v.concat(v.gather(0).h, v.gather(1).h)
    v.scatter(t=tanh(both @ v.parameter("W_tag") + v.parameter("b_tag")))


def classify(v: VertexTracer) -> None:
    """Scores of the tags and the negative log likelihood of the right one."""
    logits = v.gather(0).t @ v.parameter("W_out")
    v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))
