"""Parts of PyTorch's networks that are never trained, at widths where oneDNN lays weights out."""

from __future__ import annotations

import random

import pytest
import torch
from torch.nn import functional

from systems.on_torch.parts.stacks import Stacks
from systems.on_torch.parts.untrained import UntrainedLinear, UntrainedPair


@pytest.mark.parametrize("n", [1, 64])
@pytest.mark.parametrize("has_bias", [False, True])
def test_layers_give_new_memory(n: int, has_bias: bool) -> None:
    """What they return may be written: neither the next pass nor the input changes by it."""
    x, y = torch.randn(2, n, 256).unbind()
    one, pair = UntrainedLinear(256, 300, bias=has_bias), UntrainedPair(512, 300, bias=has_bias)
    before = x.clone()
    with torch.inference_mode():
        for _ in range(2):
            found = one(x)
            torch.testing.assert_close(found, functional.linear(x, one.weight, one.bias))
            found.zero_()
            found = pair.of_first(x).add_(pair.of_second(y))
            both = functional.linear(torch.cat([x, y], dim=1), pair.weight, pair.bias)
            torch.testing.assert_close(found, both, atol=1e-4, rtol=1e-4)
    assert torch.equal(x, before)


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
