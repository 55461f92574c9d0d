"""What an encoder's vertex functions do with matrices of a token a row; inference only.

Vaswani et al., "Attention is all you need", NIPS 2017, section 3.2; layer normalisation is that of
Ba, Kiros and Hinton, 2016.
"""

from __future__ import annotations

import math

from harness.errors import ConfigError
from harness.vertex.tracing import Symbol, tanh


def score_heads(q: Symbol, k: Symbol, n_heads: int) -> Symbol:
    """q k^T of every head, which is some of their columns: (n_heads * rows of q, rows of k).

    Heads come one after the other, each with all rows. Raises ConfigError for operands that are no
    matrices of equal width, or cannot be cut into so many heads.
    """
    (n_q, width), (n_k, other) = _matrix(q), _matrix(k)
    if width != other:
        raise ConfigError(f"rows of {width} and of {other} columns are compared; give equal ones")
    _check_heads(width, n_heads)
    return _add("score_heads", q, k, (n_heads * n_q, n_k), n_heads)


def mix_heads(p: Symbol, v: Symbol, n_heads: int) -> Symbol:
    """p v of every head, heads side by side: (rows of p / n_heads, columns of v).

    p: as score_heads leaves scores. Raises ConfigError for what does not fit.
    """
    (n_p, n_weights), (n_v, width) = _matrix(p), _matrix(v)
    _check_heads(width, n_heads)
    if n_p % n_heads or n_weights != n_v:
        raise ConfigError(
            f"{n_v} rows are mixed in {n_heads} heads by weights of shape {(n_p, n_weights)};"
            f" give a multiple of {n_heads} rows of {n_v}"
        )
    return _add("mix_heads", p, v, (n_p // n_heads, width), n_heads)


def softmax(x: Symbol) -> Symbol:
    """Softmax of every row."""
    return Symbol(x.builder, x.builder.add("softmax", x.node))


def layer_norm(x: Symbol, gain: Symbol) -> Symbol:
    """gain (x - mean) / sqrt(variance + 1e-12) of every row; what is added to it is a bias.

    Raises ConfigError unless gain is a parameter as wide as a row.
    """
    return Symbol(x.builder, x.builder.add("layer_norm", x.node, gain.node))


def gelu(x: Symbol) -> Symbol:
    """x times the normal distribution's function at x, by tanh, as BERT's first release has it.

    Hendrycks and Gimpel, "Gaussian error linear units", 2016.
    """
    return 0.5 * x * (tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))) + 1.0)


def _add(op: str, x: Symbol, y: Symbol, shape: tuple[int, int], n_heads: int) -> Symbol:
    return Symbol(x.builder, x.builder.add(op, x.node, y.node, shape=shape, index=n_heads))


def _matrix(x: Symbol) -> tuple[int, int]:
    if len(x.shape) != 2:
        raise ConfigError(f"heads are cut from a value of shape {x.shape}; give a matrix")
    n_rows, n_columns = x.shape
    return n_rows, n_columns


def _check_heads(width: int, n_heads: int) -> None:
    if n_heads < 1 or width % n_heads:
        raise ConfigError(f"{width} columns cannot be cut into {n_heads} equal heads")
