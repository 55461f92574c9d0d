"""Parts of PyTorch's networks that are never trained, at widths with and without oneDNN."""

from __future__ import annotations

import random

import pytest
import torch

from harness.contracts.model import ModelSizes
from harness.models.stack_rnn import StackRNN
from systems.on_torch.parts.stacks import Stacks
from systems.on_torch.parts.untrained import Product, UntrainedParameters


@pytest.mark.parametrize("n", [1, 64])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("k", [8, 512])
def test_products_give_new_memory_or_add(n: int, k: int, has_bias: bool) -> None:
    """What they return may be written: neither the next pass nor the input changes by it."""
    x, weight = torch.randn(n, k), torch.randn(k, 600) / k**0.5
    bias = torch.randn(600) if has_bias else None
    by, x_before = Product(weight, bias), x.clone()
    assert (by.packed is None) == (k == 8)
    expected = x @ weight
    with torch.inference_mode():
        for _ in range(2):
            found = by(x)
            torch.testing.assert_close(found, expected + (0.0 if bias is None else bias))
            found.fill_(1.0)
            assert by.add_to(found, x) is found
            torch.testing.assert_close(found, expected + 1.0)
    assert torch.equal(x, x_before)


def test_halves_of_a_weight_add_up_to_it() -> None:
    model = StackRNN(ModelSizes(6, {"words": 5, "classes": 3}))
    net = UntrainedParameters(model)
    with torch.inference_mode():
        net["W_push"].normal_()
        net["b_push"].normal_()
        x, y = torch.randn(2, 4, 6).unbind()
        found = net.by("W_push", "b_push", 0)(x)
        net.by("W_push", half=1).add_to(found, y)
        expected = torch.cat([x, y], dim=1) @ net["W_push"] + net["b_push"]
        torch.testing.assert_close(found, expected)


def test_stacks_and_buffers_hold_what_lists_would() -> None:
    """Against Python's lists of names, by random legal actions of three parsers."""
    lengths, rng, h = [5, 3, 1], random.Random(1), 2
    starts = [1, 6, 9]
    n_steps = sum(2 * n - 1 for n in lengths)
    names = Stacks(
        torch.zeros(h),
        n_steps,
        [range(start, start + n) for start, n in zip(starts, lengths, strict=True)],
    )
    buffers = [list(range(start, start + n)) for start, n in zip(starts, lengths, strict=True)]
    stacks = [[0] for _ in lengths]
    new = 1
    for step in range(2 * max(lengths) - 1):
        going = [i for i, n in enumerate(lengths) if step < 2 * n - 1]
        must = [len(stacks[i]) < 3 for i in going]
        shifts = [
            bool(buffers[i]) and (m or rng.random() < 0.5) for i, m in zip(going, must, strict=True)
        ]
        rows = names.step(shifts)
        pairs, below, pushed = [], [], []
        for i, is_shift in zip(going, shifts, strict=True):
            if is_shift:
                pushed.append(buffers[i].pop(0))
            else:
                upper = stacks[i].pop()
                pairs += [stacks[i].pop(), upper]
                pushed.append(0)
            below.append(stacks[i][-1])
            stacks[i].append(new)
            new += 1
        assert rows.pushed.tolist() == pushed
        assert rows.pairs.tolist() == pairs
        assert rows.reduced.tolist() == [i for i in going if not shifts[going.index(i)]]
        assert rows.below.tolist() == below
        assert rows.first.tolist() == [buffers[i][0] if buffers[i] else 0 for i in going]
        x = torch.full((len(going), h), float(step))
        torch.testing.assert_close(names.push(x.clone()), torch.tanh(x))
    assert len(names.states) == new
