"""Ways to run LSTMs along the sentences of a mini-batch; every one takes and gives places.

Measured in whole systems, training, hidden 256, batch 64, lengths of PTB's sentences, by the
processor time of one core of a busy machine, best of 3 in turns, in sentences/s (Var-LSTM with
10 000 words, BiLSTM, BiLSTM with 15 % of words spelled out): Columnwise 348, 686, 486; Padded in
1, 2, 4 and 8 buckets 299, 399, 339; 337, 596, 418; 335, 629, 497; 338, 628, 455; Packed 263, 317,
244; Columnwise with compiled steps 335, 596, 428. Var-LSTM inference, hidden 512: Columnwise 451,
Padded 345, in 4 buckets 399, Packed 343. Steps by autograd instead of a derivative by hand, both
with MKL's products: 70 ms a mini-batch instead of 65, without the output layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from systems.on_torch.parts.lstm import StepStates, lstm_steps
from systems.on_torch.parts.rows import Columns, Order, buckets, columns
from systems.plans.trees import Ids

# h_0 and c_0 (layers, h), the same for every sentence, or (layers, k, h), each one's own.
Start = tuple[Tensor, Tensor]


class Recurrence(ABC):
    """How LSTMs run along sentences."""

    @abstractmethod
    def plan(self, lengths: Ids, device: torch.device) -> Any:
        """What a mini-batch of sentences of these lengths needs; timed."""

    @abstractmethod
    def run(
        self, lstm: nn.LSTM, x: Tensor, plan: Any, start: Start | None = None, *, against: bool
    ) -> Tensor:
        """h of the top layer at every place (n, h).

        x (n, n_inputs): by place. start: None for zeros. against: from the last word to the first.
        """

    def last(
        self, lstm: nn.LSTM, rows: Tensor, columns: Columns, start: Start
    ) -> tuple[Tensor, Tensor]:
        """h and c of a single layer behind the last word of each column (k, h).

        rows (n, n_inputs): of the columns. Step by step: nn.LSTM has no c before a padded end.
        """
        return last_by_steps(lstm, rows, columns, start, StepStates)


def last_by_steps(
    lstm: nn.LSTM, rows: Tensor, columns: Columns, start: Start, kind: type[StepStates]
) -> tuple[Tensor, Tensor]:
    """See Recurrence.last."""
    W, U, b, _ = lstm.all_weights[0]
    h, c = lstm_steps(rows, W, U, b, side_by_side(start, 0, columns.order), columns, kind)
    return h.index_select(0, columns.last), c


@dataclass(frozen=True)
class Columnwise(Recurrence):
    """Step by step over sentences that still go on, the longest first: no padding, no masks.

    kind: how a step is computed.
    """

    kind: type[StepStates] = StepStates

    def plan(self, lengths: Ids, device: torch.device) -> Columns:
        """Rows of all words."""
        return columns(lengths, device)

    def run(
        self,
        lstm: nn.LSTM,
        x: Tensor,
        plan: Columns,
        start: Start | None = None,
        *,
        against: bool,
    ) -> Tensor:
        """Layer by layer."""
        order = plan.against if against else plan.along
        rows = order.arrange(x)
        for layer in range(lstm.num_layers):
            first = None if start is None else side_by_side(start, layer, plan.order)
            rows, _ = self.layer(lstm, layer, rows, first, plan)
        return order.restore(rows)

    def layer(
        self, lstm: nn.LSTM, layer: int, rows: Tensor, start: Tensor | None, plan: Columns
    ) -> tuple[Tensor, Tensor]:
        """h of every row (n, h), and the last c of every column (k, h); start: (k, 2 h)."""
        W, U, b, _ = lstm.all_weights[layer]
        return lstm_steps(rows, W, U, b, start, plan, self.kind)

    def last(
        self, lstm: nn.LSTM, rows: Tensor, columns: Columns, start: Start
    ) -> tuple[Tensor, Tensor]:
        """By steps of its own kind."""
        return last_by_steps(lstm, rows, columns, start, self.kind)


def side_by_side(start: Start, layer: int, order: Tensor) -> Tensor:
    """h_0 and c_0 of a layer side by side, for every column (k, 2 h); order: their sentences."""
    joined = torch.cat([start[0][layer], start[1][layer]], dim=-1)
    if joined.ndim == 1:
        return joined.expand(len(order), len(joined))
    return joined.index_select(0, order)


@dataclass(frozen=True)
class Padded(Recurrence):
    """nn.LSTM over rectangles, padded behind each sentence's end, where nothing is read.

    Words of a sentence that is read backwards are put in reverse order before, so that there, too,
    padding comes last.
    """

    n_buckets: int

    def plan(self, lengths: Ids, device: torch.device) -> Any:
        """Rows of all words in the rectangles."""
        return buckets(lengths, self.n_buckets, device)

    def run(
        self, lstm: nn.LSTM, x: Tensor, plan: Any, start: Start | None = None, *, against: bool
    ) -> Tensor:
        """A call of nn.LSTM for each rectangle."""
        order: Order = plan.against if against else plan.along
        parts = torch.split(order.arrange(x), [n * k for n, k in plan.shapes])
        sentences = torch.split(plan.order, [k for _, k in plan.shapes])
        found = []
        for part, (n_steps, k), of in zip(parts, plan.shapes, sentences, strict=True):
            h, _ = lstm(part.view(n_steps, k, -1), first_states(start, of))
            found.append(h.reshape(n_steps * k, -1))
        return order.restore(torch.cat(found) if len(found) > 1 else found[0])


class Packed(Recurrence):
    """nn.LSTM over a PackedSequence: no padding, but on a CPU another kernel (not oneDNN's)."""

    def plan(self, lengths: Ids, device: torch.device) -> Any:
        """Columns, and their sizes as PackedSequence wants them."""
        return columns(lengths, device)

    def run(
        self, lstm: nn.LSTM, x: Tensor, plan: Any, start: Start | None = None, *, against: bool
    ) -> Tensor:
        """One call of nn.LSTM."""
        order: Order = plan.against if against else plan.along
        packed = PackedSequence(order.arrange(x), torch.tensor(plan.sizes))
        h, _ = lstm(packed, first_states(start, plan.order))
        return order.restore(h.data)

    def last(
        self, lstm: nn.LSTM, rows: Tensor, columns: Columns, start: Start
    ) -> tuple[Tensor, Tensor]:
        """By one call of nn.LSTM, which gives them where nothing is padded."""
        packed = PackedSequence(rows, torch.tensor(columns.sizes))
        _, (h, c) = lstm(packed, first_states(start, columns.order))
        return h[0], c[0]


def first_states(start: Start | None, order: Tensor) -> Start | None:
    """h_0 and c_0 as nn.LSTM takes them, (layers, k, h); order (k,): each column's sentence."""
    if start is None:
        return None
    h_0, c_0 = (_by_column(first, order) for first in start)
    return h_0, c_0


def _by_column(first: Tensor, order: Tensor) -> Tensor:
    if first.ndim == 3:
        return first.index_select(1, order)
    return first[:, None].expand(-1, len(order), -1).contiguous()
