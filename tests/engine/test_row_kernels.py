"""Kernels of rows: what they compute, and that their loops are vectorised."""

from __future__ import annotations

import itertools
import platform
import re
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from harness.contracts.model import ModelSizes, traced_functions
from harness.engine.backends.compiled.backend import Backend
from harness.engine.backends.compiled.source import write_loop
from harness.engine.cpu_kernels import loss_kernels, memory_kernels, row_kernels
from harness.engine.lowering.lower import lower
from harness.engine.switches import Switches
from harness.models.berxit import Berxit
from tests.support.engine_models import EXAMPLES

Floats = NDArray[np.float32]
X86 = platform.machine() in ("x86_64", "AMD64")
rng = np.random.default_rng(0)


def _rows(n: int, width: int) -> Floats:
    return rng.standard_normal((n, width), dtype=np.float32)


@pytest.mark.parametrize("n", [0, 1, 3, 4, 9])
def test_rows_are_added_up_from_anywhere_in_wider_ones(n: int) -> None:
    x, out, written = _rows(12, 7), np.full(3, 5.0, np.float32), np.zeros(1, np.int64)
    row_kernels.add_up_rows(x, 2 * 7 + 1, 7, n, out, written)
    np.testing.assert_allclose(out, x[2 : 2 + n, 1:4].sum(axis=0), rtol=1e-5, atol=1e-6)
    row_kernels.add_up_rows(x, 0, 7, n, out, written)
    both = x[2 : 2 + n, 1:4].sum(axis=0) + x[:n, :3].sum(axis=0)
    np.testing.assert_allclose(out, both, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [None, _rows(1, 6)[0]])
@pytest.mark.parametrize("leaves_gradient", [True, False])
def test_a_loss_and_what_it_leaves(bias: Floats | None, leaves_gradient: bool) -> None:
    given, label = 3.0 * _rows(5, 6), np.array([0, 5, 2, 2, 1])
    logits = given.astype(np.float64) + (0.0 if bias is None else bias)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    rows = np.arange(5)
    left, loss, log_sum = given.copy(), np.empty((5, 1), np.float32), np.empty((5, 1), np.float32)
    own = loss_kernels.NO_BIAS if bias is None else bias
    loss_kernels.softmax_loss(left, own, label, loss, log_sum, leaves_gradient)
    np.testing.assert_allclose(loss[:, 0], -np.log(chances[rows, label]), rtol=1e-5, atol=1e-6)
    if not leaves_gradient:
        np.testing.assert_allclose(left, logits, rtol=1e-6)
        return
    expected = chances.copy()
    expected[rows, label] -= 1.0
    np.testing.assert_allclose(left, expected, atol=1e-6)
    recovered = loss_kernels.logits_of(left, label, loss, log_sum)
    np.testing.assert_allclose(recovered, logits, rtol=1e-5, atol=1e-5)


def test_logits_far_below_the_largest_are_recovered_as_far_as_float32_goes() -> None:
    given = np.array([[0.0, -200.0, 1.0]], np.float32)
    left, loss, log_sum = given.copy(), np.empty((1, 1), np.float32), np.empty((1, 1), np.float32)
    label = np.array([0])
    loss_kernels.softmax_loss(left, loss_kernels.NO_BIAS, label, loss, log_sum, True)
    recovered = loss_kernels.logits_of(left, label, loss, log_sum)
    np.testing.assert_allclose(recovered[0, [0, 2]], given[0, [0, 2]], atol=1e-6)
    assert recovered[0, 1] < -80.0


VECTORISED = {
    "add_up_rows": (
        row_kernels.add_up_rows,
        lambda x: (x, 0, 64, 8, np.zeros(64, np.float32), np.zeros(1, np.int64)),
    ),
    "scatter_add_slot": (
        memory_kernels.scatter_add_slot,
        lambda x: (x.copy(), np.arange(8), 0, 1, x, 0, 0, 8),
    ),
    "largest": (
        loss_kernels.largest,
        lambda x: (x.reshape(-1), np.zeros(loss_kernels.N_LANES, np.float32)),
    ),
}


@pytest.mark.skipif(not X86, reason="names of instructions are those of x86")
@pytest.mark.parametrize("name", VECTORISED)
def test_a_loop_over_a_row_takes_several_elements_at_once(name: str) -> None:
    kernel, arguments = VECTORISED[name]
    options = kernel.targetoptions
    anew: Any = numba.njit(  # of what was compiled before, the text is not kept
        fastmath=options.get("fastmath", False), error_model=options["error_model"]
    )(kernel.py_func)
    anew(*arguments(_rows(8, 64)))
    several = re.compile(r"(max|cmp\w*)ps" if name == "largest" else "addps")
    assert any(several.search(text) for text in anew.inspect_asm().values())


def test_rows_of_whole_buffers_are_not_cut_into_columns() -> None:
    # A matrix of cut rows is one of unknown strides, over which no loop is vectorised.
    plan = lower(
        traced_functions(EXAMPLES["var_lstm"][0])["output"], Switches(), Backend.abilities, True
    )
    lines = write_loop({-1: plan}, "lazy").body.splitlines()
    (call,) = (line for line in lines if "softmax_loss(" in line)
    assert ", 0:" not in call


def test_rows_of_matrices_are_gone_through_part_by_part() -> None:
    # An index q * width + k could be negative for all that the compiler knows, so that no loop over
    # it is vectorised.
    model = Berxit(ModelSizes(4, {"words": 7, "classes": 3}), tokens=3)
    plan = lower(traced_functions(model)["layer"], Switches(), Backend.abilities, train=False)
    lines = write_loop({1: plan}, "batch").body.splitlines()
    inner = [k for k, line in enumerate(lines) if "for k in range(" in line]
    assert len(inner) >= 5
    for first in inner:
        indent = len(lines[first]) - len(lines[first].lstrip())
        deeper = " " * (indent + 1)
        body = [*itertools.takewhile(lambda line: line.startswith(deeper), lines[first + 1 :])]  # noqa: B023
        assert body
        assert all(re.findall(r"\[(.*?)\]", line) in ([], ["k"]) for line in body)


def test_what_exceeds_its_room() -> None:
    wanted = np.arange(24, dtype=np.int64).reshape(4, 6)[:, :3]
    assert not memory_kernels.exceeds(wanted, wanted.copy())
    assert not memory_kernels.exceeds(wanted[:0], wanted[:0])
    for i, j in ((0, 0), (2, 1), (3, 2)):
        room = wanted.copy()
        room[i, j] -= 1
        assert memory_kernels.exceeds(wanted, room)
        assert not memory_kernels.exceeds(room, wanted)
