"""Plans on a device: rows of words and of states, and tensors of what plans hold.

A place is a word's number, counted through all sentences of a mini-batch, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from systems.plans.sentences import rectangles, stairs
from systems.plans.trees import Ids, inverse


@dataclass(frozen=True, slots=True)
class Order:
    """From places to rows and back.

    places (m,): of every row its place; of padding, any. rows (n,): of every place its row.
    """

    places: Tensor
    rows: Tensor

    def arrange(self, x: Tensor) -> Tensor:
        """Rows (m, ...) of what belongs to places (n, ...)."""
        return moved(x, self.places, self.rows)

    def restore(self, y: Tensor) -> Tensor:
        """What belongs to places (n, ...), of rows (m, ...); padding is left behind."""
        return moved(y, self.rows, self.places)


class _Moved(torch.autograd.Function):
    """index_select by rows of which each is read once or is padding, which has no gradient.

    The derivative is an index_select, too: a third of the time of PyTorch's own, which adds.
    """

    @staticmethod
    def forward(ctx, x, taken, given):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(taken, given)
        ctx.n = len(x)
        return x.index_select(0, taken)

    @staticmethod
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        taken, given = ctx.saved_tensors
        if len(taken) >= ctx.n:  # what is padded has been read besides
            return dy.index_select(0, given), None, None
        return dy.new_zeros(ctx.n, *dy.shape[1:]).index_copy_(0, taken, dy), None, None


def moved(x: Tensor, taken: Tensor, given: Tensor) -> Tensor:
    """x[taken]; given: where each row of x has gone."""
    rows: Tensor = _Moved.apply(x, taken, given)  # type: ignore[no-untyped-call]
    return rows


@dataclass(frozen=True, slots=True)
class Columns:
    """Sentences side by side, the longest first, a step after the other and nothing padded.

    along, against: rows of the places read forwards and backwards. sizes: rows of every step, which
    never grow. before (n,): of every row that of the state before it, where k first states come
    first. order, ranks (k,): of every column its sentence, and of every sentence its column.
    last (k,): of every column its last row.
    """

    along: Order
    against: Order
    sizes: list[int]
    before: Tensor
    order: Tensor
    ranks: Tensor
    last: Tensor


def columns(lengths: Ids, device: torch.device) -> Columns:
    """Put sentences of these lengths, none of them 0, side by side."""
    found = stairs(lengths)
    rows, order, column = found.rows, found.order, np.arange(len(found.order))
    earlier = np.concatenate([column, len(order) + found.before])
    last = (np.cumsum(found.widths) - found.widths)[lengths[order] - 1] + column
    parts = rows.along, rows.of_along, rows.against, rows.of_against
    to, fro, to_back, fro_back, *others = to_device(
        device, *parts, earlier, order, inverse(order), last
    )
    return Columns(Order(to, fro), Order(to_back, fro_back), found.widths.tolist(), *others)


@dataclass(frozen=True, slots=True)
class Buckets:
    """Sentences of similar length in rectangles, a step after the other.

    along, against: rows of the places read forwards and backwards. shapes: steps and columns of
    every rectangle. order (k,): of every column its sentence.
    """

    along: Order
    against: Order
    shapes: Sequence[tuple[int, int]]
    order: Tensor


def buckets(lengths: Ids, n_buckets: int, device: torch.device) -> Buckets:
    """Put sentences of these lengths, none of them 0, in as many rectangles at most."""
    found = rectangles(lengths, n_buckets, round_up_to=1)
    rows = found.rows
    parts = rows.along, rows.of_along, rows.against, rows.of_against, found.order
    to, fro, to_back, fro_back, order = to_device(device, *parts)
    return Buckets(Order(to, fro), Order(to_back, fro_back), found.shapes, order)


def to_device(device: torch.device, *arrays: NDArray[np.integer]) -> Sequence[Tensor]:
    """Tensors of 64-bit integers; all reach the device in one copy."""
    joined = torch.from_numpy(np.concatenate(arrays, dtype=np.int64)).to(device)
    return torch.split(joined, [len(array) for array in arrays])


def on_device(plan: Any, device: torch.device) -> Any:
    """Return a plan, a named tuple, with a tensor for every array; `order` stays in NumPy.

    All reach the device in one copy.
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
    """Return ids as PyTorch indexes by them."""
    return torch.from_numpy(ids.astype(np.int64)).to(device)


class StateRows:
    """Vectors of all rows (n, h) of each of some kinds, zeros at first.

    Of every kind `whole` has all rows. own: views of every step's rows. before: of the rows of the
    step before it, where it goes on.
    """

    def __init__(self, like: Tensor, plan: Any, n_kinds: int, width: int) -> None:
        self.whole = [like.new_zeros(len(plan.order), width) for _ in range(n_kinds)]
        steps = [torch.split(rows, plan.sizes) for rows in self.whole]
        earlier = [map(first_rows, kind, plan.sizes[1:]) for kind in steps]
        self.own: list[tuple[Tensor, ...]] = list(zip(*steps, strict=True))
        self.before: list[tuple[Tensor, ...]] = [(), *zip(*earlier, strict=True)]

    def take(self, rows: Tensor) -> list[Tensor]:
        """Of any rows, copied."""
        return [whole.index_select(0, rows) for whole in self.whole]

    def add(self, rows: Tensor, more: Sequence[Tensor]) -> None:
        """Add to any rows, of which some may be the same."""
        for whole, new in zip(self.whole, more, strict=True):
            whole.index_add_(0, rows, new)


def first_rows(rows: Tensor, n: int) -> Tensor:
    """As many of the rows; there are no fewer."""
    return rows if len(rows) == n else rows[:n]
