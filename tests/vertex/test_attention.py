"""Attention, softmax and layer normalization against plain loops."""

from __future__ import annotations

import math

import numpy as np

from dynbatch.harness.reference import KERNELS
from dynbatch.harness.vertex import gelu
from dynbatch.harness.vertex.operators import Node
from tests.support.one_body import traced

N_HEADS, N_ROWS, N_WEIGHTS, WIDTH = 3, 4, 5, 6


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).normal(size=shape)


def head(x: np.ndarray, k: int) -> np.ndarray:
    columns = WIDTH // N_HEADS
    return x[:, k * columns : (k + 1) * columns]


def test_every_head_compares_its_own_columns() -> None:
    q, k = drawn(N_ROWS, WIDTH), drawn(N_WEIGHTS, WIDTH)
    found = KERNELS["score_heads"](Node("score_heads", index=N_HEADS), q, k)
    expected = [head(q, i) @ head(k, i).T for i in range(N_HEADS)]
    np.testing.assert_allclose(found, np.concatenate(expected))


def test_every_head_mixes_its_own_columns() -> None:
    p, v = drawn(N_HEADS * N_ROWS, N_WEIGHTS), drawn(N_WEIGHTS, WIDTH)
    found = KERNELS["mix_heads"](Node("mix_heads", index=N_HEADS), p, v)
    expected = [p[i * N_ROWS : (i + 1) * N_ROWS] @ head(v, i) for i in range(N_HEADS)]
    np.testing.assert_allclose(found, np.concatenate(expected, axis=1))


def test_a_softmax_and_a_norm_are_of_rows() -> None:
    x, gain = 100.0 * drawn(3, 4), drawn(4)
    soft = KERNELS["softmax"](Node("softmax"), x)
    normal = KERNELS["layer_norm"](Node("layer_norm"), x, gain)
    for row, of_soft, of_norm in zip(x, soft, normal, strict=True):
        powers = [math.exp(value - max(row)) for value in row]
        np.testing.assert_allclose(of_soft, np.array(powers) / sum(powers))
        np.testing.assert_allclose(of_norm, gain * (row - row.mean()) / row.std())


def test_gelu_approximates_the_exact_function() -> None:
    nodes = traced(lambda v, x, y: gelu(x)).nodes
    xs = np.linspace(-4.0, 4.0, 41)
    values: dict[int, np.ndarray] = {}
    first = next(i for i, node in enumerate(nodes) if node.op == "lookup")
    for i, node in enumerate(nodes):
        if i == first:
            values[i] = xs
        elif node.inputs and all(k in values for k in node.inputs):
            values[i] = KERNELS[node.op](node, *(values[k] for k in node.inputs))
    exact = [x * 0.5 * (1.0 + math.erf(x / math.sqrt(2.0))) for x in xs]
    np.testing.assert_allclose(values[len(nodes) - 1], exact, atol=1e-3)
