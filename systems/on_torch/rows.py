"""Plans on a device: rows of words and states, and tensors of the arrays of plans.

A position (identifiers: `places`) is the number of a word, counted through all sentences of a
mini-batch, one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynbatch.systems.plans.sentences import Lengths, plan_rectangles, plan_stairs
from dynbatch.systems.plans.trees import invert_permutation


@dataclass(frozen=True, slots=True)
class RowPermutation:
    """Permutation between positions and rows.

    Attributes:
        places: (m,) position of every row; arbitrary for padding.
        rows: (n,) row of every position.
    """

    places: Tensor
    rows: Tensor

    def arrange(self, x: Tensor) -> Tensor:
        """Return rows (m, ...) of values by position (n, ...)."""
        return move_rows(x, self.places, self.rows)

    def restore(self, y: Tensor) -> Tensor:
        """Return values by position (n, ...) of rows (m, ...), without padding."""
        return move_rows(y, self.rows, self.places)


class _Moved(torch.autograd.Function):
    """index_select by rows that are each read once, or are padding, which has no gradient.

    The derivative is an index_select, too, and takes a third of the time of PyTorch's, which adds.
    """

    @staticmethod
    def forward(ctx, x, taken, given):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(taken, given)
        ctx.n = len(x)
        return x.index_select(0, taken)

    @staticmethod
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        taken, given = ctx.saved_tensors
        if len(taken) >= ctx.n:  # every row was read, and possibly padding
            return dy.index_select(0, given), None, None
        return dy.new_zeros(ctx.n, *dy.shape[1:]).index_copy_(0, taken, dy), None, None


def move_rows(x: Tensor, taken: Tensor, given: Tensor) -> Tensor:
    """Return x[taken].

    Args:
        given: index in `taken` of each row of x.
    """
    rows: Tensor = _Moved.apply(x, taken, given)  # type: ignore[no-untyped-call]
    return rows


@dataclass(frozen=True, slots=True)
class UnpaddedColumns:
    """Sentences as columns, longest first, one step after another, without padding.

    Attributes:
        along: rows of the positions, read forwards.
        against: rows of the positions, read backwards.
        sizes: rows of every step, which never increase.
        before: (n,) row of each row's previous state, after k initial states.
        order: (k,) sentence of every column.
        ranks: (k,) column of every sentence.
        last: (k,) last row of every column.
    """

    along: RowPermutation
    against: RowPermutation
    sizes: list[int]
    before: Tensor
    order: Tensor
    ranks: Tensor
    last: Tensor


def arrange_columns(lengths: Lengths, device: torch.device) -> UnpaddedColumns:
    """Arrange sentences of these lengths as columns."""
    plan, order = plan_stairs(lengths)
    column = np.arange(len(order))
    earlier = np.concatenate([column, len(order) + plan.before])
    last = (np.cumsum(plan.widths) - plan.widths)[lengths[order] - 1] + column
    parts = plan.along, plan.of_along, plan.against, plan.of_against
    to, fro, to_back, fro_back, *others = to_device(
        device, *parts, earlier, order, invert_permutation(order), last
    )
    return UnpaddedColumns(
        RowPermutation(to, fro), RowPermutation(to_back, fro_back), plan.widths.tolist(), *others
    )


@dataclass(frozen=True, slots=True)
class Buckets:
    """Rectangles of sentences of similar length, one step after another.

    Attributes:
        along: rows of the positions, read forwards.
        against: rows of the positions, read backwards.
        shapes: steps and columns of every rectangle.
        order: (k,) sentence of every column.
    """

    along: RowPermutation
    against: RowPermutation
    shapes: Sequence[tuple[int, int]]
    order: Tensor


def arrange_buckets(lengths: Lengths, n_buckets: int, device: torch.device) -> Buckets:
    """Arrange sentences of these lengths in at most n_buckets rectangles."""
    plan = plan_rectangles(lengths, n_buckets, round_up_to=1)
    parts = plan.along, plan.of_along, plan.against, plan.of_against, plan.order
    to, fro, to_back, fro_back, order = to_device(device, *parts)
    return Buckets(RowPermutation(to, fro), RowPermutation(to_back, fro_back), plan.shapes, order)


def to_device(device: torch.device, *arrays: NDArray[np.integer]) -> Sequence[Tensor]:
    """Return tensors of 64-bit integers; one copy brings all of them to the device."""
    joined = torch.from_numpy(np.concatenate(arrays, dtype=np.int64)).to(device)
    return torch.split(joined, [len(array) for array in arrays])


def move_to_device(plan: Any, device: torch.device) -> Any:
    """Move a plan (named tuple) to a device: every array but `order` becomes a tensor.

    One copy brings all arrays to the device.
    """
    arrays = {
        name: values
        for name, values in plan._asdict().items()
        if isinstance(values, np.ndarray) and name != "order"
    }
    tensors = to_device(device, *(values.ravel() for values in arrays.values()))
    shaped = (tensor.view(own.shape) for tensor, own in zip(tensors, arrays.values(), strict=True))
    return plan._replace(**dict(zip(arrays, shaped, strict=True)))


def to_tensor(ids: NDArray[np.integer], device: torch.device) -> Tensor:
    return torch.from_numpy(ids.astype(np.int64)).to(device)


class StateRows:
    """Vectors of all rows (n, h), of several kinds of states, initially zeros.

    Attributes:
        whole: all rows, by kind.
        own: views of each step's rows, by step and kind.
        before: views of the rows of the previous step that each step continues.
    """

    def __init__(self, like: Tensor, plan: Any, n_kinds: int, width: int) -> None:
        self.whole = [like.new_zeros(len(plan.order), width) for _ in range(n_kinds)]
        steps = [torch.split(rows, plan.sizes) for rows in self.whole]
        earlier = [map(take_first_rows, kind, plan.sizes[1:]) for kind in steps]
        self.own: list[tuple[Tensor, ...]] = list(zip(*steps, strict=True))
        self.before: list[tuple[Tensor, ...]] = [(), *zip(*earlier, strict=True)]

    def take(self, rows: Tensor) -> list[Tensor]:
        """Return copies of rows, by kind."""
        return [whole.index_select(0, rows) for whole in self.whole]

    def add(self, rows: Tensor, more: Sequence[Tensor]) -> None:
        """Add to rows, which may repeat."""
        for whole, new in zip(self.whole, more, strict=True):
            whole.index_add_(0, rows, new)


def take_first_rows(rows: Tensor, n: int) -> Tensor:
    return rows if len(rows) == n else rows[:n]
