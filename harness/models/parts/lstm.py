"""LSTM cell of all sequence models, and the classifier of taggers.

Source: Hochreiter and Schmidhuber, Neural Computation 1997; with a forget gate (Gers, Schmidhuber
and Cummins, ICANN 1999) whose bias is initialized to 1.
"""

from __future__ import annotations

from dynbatch.harness.contracts.model import ParameterSpec
from dynbatch.harness.values.checked import check_count
from dynbatch.harness.vertex import Symbol, VertexTracer, pick_neg_log_softmax, sigmoid, tanh


def specify_lstm_parameters(suffix: str, n_inputs: int, h: int) -> dict[str, ParameterSpec]:
    """Return specs of W (n_inputs, 4 h), U (h, 4 h) and b (4 h,), with columns i, f, g, o.

    The names of the parameters end with `suffix`.
    """
    return {
        f"W{suffix}": ParameterSpec((n_inputs, 4 * h), n_inputs**-0.5),
        f"U{suffix}": ParameterSpec((h, 4 * h), h**-0.5),
        f"b{suffix}": ParameterSpec((4 * h,), 0.1, init_means=(0.0, 1.0, 0.0, 0.0)),
    }


def from_input(v: VertexTracer, suffix: str, x: Symbol) -> Symbol:
    """Compute the input's part of the gates: W x + b."""
    return x @ v.parameter(f"W{suffix}") + v.parameter(f"b{suffix}")


def compute_first_step(v: VertexTracer, gates: Symbol, states: str = "") -> None:
    """Compute the step from a state of zeros: c = i g; h = o tanh c.

    Args:
        states: prefix of the names of the states.
    """
    i, _, g, o = v.split(gates, 4)
    c = sigmoid(i) * tanh(g)
    v.scatter(**{f"{states}h": sigmoid(o) * tanh(c), f"{states}c": c})


def step(v: VertexTracer, suffix: str, gates: Symbol, states: str = "") -> None:
    """Add U h to the gates, and compute c' = f c + i g; h' = o tanh c', from the state in slot 0.

    Args:
        states: prefix of the names of the states.
    """
    before = v.gather(0)
    h, c = getattr(before, f"{states}h"), getattr(before, f"{states}c")
    i, f, g, o = v.split(gates + h @ v.parameter(f"U{suffix}"), 4)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    v.scatter(**{f"{states}h": sigmoid(o) * tanh(c), f"{states}c": c})


def start(v: VertexTracer, suffix: str, h: int) -> None:
    """Scatter a learned initial state."""
    v.scatter(
        h=v.zeros(h) + v.parameter(f"h_0{suffix}"), c=v.zeros(h) + v.parameter(f"c_0{suffix}")
    )


def specify_start_parameters(suffix: str, h: int) -> dict[str, ParameterSpec]:
    """Return specs of h_0 and c_0 (h,); their names end with `suffix`."""
    return {f"h_0{suffix}": ParameterSpec((h,), 0.1), f"c_0{suffix}": ParameterSpec((h,), 0.1)}


def format_layer_suffix(layer: int) -> str:
    """Return the suffix of the parameters of a layer; empty for the first layer."""
    return "" if layer == 1 else f"_{layer}"


MAX_LAYERS = 64  # each layer has its own vertex types and kernels


def validate_layers(layers: int) -> int:
    """Return the number of layers.

    Raises:
        ConfigError: unless it is 1 to MAX_LAYERS.
    """
    check_count("model.options.layers", layers, 1, MAX_LAYERS)
    return layers


def specify_tagger_parameters(h: int, t: int, n_classes: int) -> dict[str, ParameterSpec]:
    """Return specs of W_tag (2 h, t), b_tag (t,) and W_out (t, n_classes).

    The rows of W_tag are those of the forward direction, then those of the backward one.
    """
    return {
        "W_tag": ParameterSpec((2 * h, t), (2 * h) ** -0.5),
        "b_tag": ParameterSpec((t,), 0.1),
        "W_out": ParameterSpec((t, n_classes), t**-0.5),
    }


def compute_tag(v: VertexTracer) -> None:
    """Compute t = tanh(W_tag [h_forward; h_backward] + b_tag)."""
    both = v.concat(v.gather(0).h, v.gather(1).h)
    v.scatter(t=tanh(both @ v.parameter("W_tag") + v.parameter("b_tag")))


def classify(v: VertexTracer) -> None:
    """Compute the scores of the tags and the negative log likelihood of the correct one."""
    logits = v.gather(0).t @ v.parameter("W_out")
    v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))
