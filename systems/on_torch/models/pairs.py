"""Encoder-decoders in PyTorch: all pairs of sentences in parallel.

seq2seq decodes step by step. Each step includes its scores and loss; only gradients are deferred to
the last step, as one product over all steps per weight. seq2seq_at_once knows all words in advance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.values.instances import SentencePair
from dynbatch.systems.on_torch.layers import (
    LateOutputs,
    LossWay,
    Scores,
    StartedLSTM,
    make_output_layer,
)
from dynbatch.systems.on_torch.models.lstm import Columnwise, Recurrence, StepStates
from dynbatch.systems.on_torch.net import Batched
from dynbatch.systems.on_torch.products import apply_linear, aten, multiply
from dynbatch.systems.on_torch.rows import UnpaddedColumns, arrange_columns, to_device
from dynbatch.systems.plans.trees import Ids


class PairBatch(NamedTuple):
    """Mini-batch of pairs.

    Attributes:
        source: (n,) words by row of the encoders.
        read: (m,) words that decoders read, by position.
        labels: (m,) words that decoders predict, by position.
        encoders: columns of the encoders.
        n_steps: (k,) steps of every decoder.
    """

    source: Tensor
    read: Tensor
    labels: Tensor
    encoders: UnpaddedColumns
    n_steps: Ids


def plan_pairs(pairs: Sequence[SentencePair], device: torch.device) -> PairBatch:
    """Arrange the encoders as columns; the decoders are not arranged yet."""
    n_source = np.array([len(pair.source) for pair in pairs], dtype=np.int64)
    n_steps = np.array([pair.n_steps for pair in pairs], dtype=np.int64)
    encoders = arrange_columns(n_source, device)
    source, read, labels = to_device(
        device,
        np.concatenate([pair.source for pair in pairs]),
        np.concatenate([pair.target[:-1] for pair in pairs]),
        np.concatenate([pair.target[1:] for pair in pairs]),
    )
    return PairBatch(source[encoders.along.places], read, labels, encoders, n_steps)


class PairsSideBySide(Batched):
    """All pairs in parallel, longest first. A subclass has the decoder's parameters."""

    def __init__(self, model: Model, way: LossWay = "whole") -> None:
        super().__init__(model)
        self.source_embedding = self.make_table("source_embedding")
        self.target_embedding = self.make_table("target_embedding")
        self.read_source = self.make_linear("E_source", "b_E_source")
        self.read_target = self.make_linear("E_target", "b_E_target")
        self.encoder = StartedLSTM(self, ["_source"], [""])
        self.output = make_output_layer(self, None, way)

    def embed_words(self, words: Tensor, table: nn.Embedding, read: nn.Linear) -> Tensor:
        """Return tanh(E x + b_E) of words (n,), (n, h)."""
        return torch.tanh(apply_linear(table(words), read.weight, read.bias))

    def encode_sources(self, batch: PairBatch, recurrence: Recurrence) -> tuple[Tensor, Tensor]:
        """Return h and c after every source's last word, by column of the encoders (k, h)."""
        x = self.embed_words(batch.source, self.source_embedding, self.read_source)
        return recurrence.compute_last_states(
            self.encoder.lstm, x, batch.encoders, self.encoder.start
        )


class DecoderBatch(NamedTuple):
    """Mini-batch of pairs whose decoders run step by step.

    Attributes:
        read: (m,) words that decoders read, by row of the decoders.
        labels: (m,) words that decoders predict, by row of the decoders.
        swap: (k,) encoder column of every decoder column.
        decoders: columns of the decoders.
    """

    pairs: PairBatch
    read: Tensor
    labels: Tensor
    swap: Tensor
    decoders: UnpaddedColumns


class LevelsSeq2Seq(PairsSideBySide):
    """Model whose decoders run step by step, including outputs.

    The encoder also runs by hand (Columnwise): the decoder needs its last c, which a padded nn.LSTM
    does not return, and a packed one is slower on a CPU.
    """

    def __init__(self, model: Model, recurrence: Columnwise | None = None) -> None:
        super().__init__(model)
        self.decoder = self.make_lstm_cell("_target")
        self.steps = recurrence or Columnwise()

    def plan(self, pairs: Sequence[SentencePair], device: torch.device) -> DecoderBatch:
        """Plan the rows of encoders and decoders, whose order differs."""
        batch = plan_pairs(pairs, device)
        decoders = arrange_columns(batch.n_steps, device)
        places, swap = decoders.along.places, batch.encoders.ranks[decoders.order]
        return DecoderBatch(batch, batch.read[places], batch.labels[places], swap, decoders)

    def forward(self, batch: DecoderBatch) -> tuple[Tensor, LateOutputs]:
        """Return the summed loss, and the logits of all predicted words in the decoders' rows."""
        state = torch.cat(self.encode_sources(batch.pairs, self.steps), dim=1)
        loss, hidden = _Decoder.apply(  # type: ignore[no-untyped-call]
            batch,
            self.steps.kind,
            state.index_select(0, batch.swap),
            self.target_embedding.weight,
            self.read_target.weight,
            self.read_target.bias,
            self.decoder.weight_ih,
            self.decoder.weight_hh,
            self.decoder.bias_ih,
            self.output.weight,
        )
        return loss, self.output.defer_logits(hidden)

    def find_canonical_rows(self, batch: DecoderBatch) -> NDArray[np.integer]:
        return batch.decoders.along.rows.cpu().numpy()


class DecoderWeights(NamedTuple):
    """Weights of x = tanh(E word + e), an LSTM cell with W x + U h + b, and scores W_out h.

    Attributes:
        table: (words, n).
        E: (h, n).
        e: (h,).
        W: (4 h, h).
        U: (4 h, h).
        b: (4 h,).
        W_out: (h, words).
    """

    table: Tensor
    E: Tensor
    e: Tensor
    W: Tensor
    U: Tensor
    b: Tensor
    W_out: Tensor


class _Decoder(torch.autograd.Function):
    """Summed loss and h of all rows (n, h), given concatenated initial h and c (k, 2 h)."""

    @staticmethod
    def forward(ctx, batch, kind: type[StepStates], state, *weights):  # type: ignore[no-untyped-def]
        w, n, k = DecoderWeights(*weights), len(batch.read), len(state)
        h = w.U.shape[1]
        states = kind(state.new_empty(n, 4 * h), h, k, state)
        embedded, x = state.new_empty(n, w.table.shape[1]), state.new_empty(n, h)
        scores = Scores(w.W_out, None, keep=not torch.is_inference_mode_enabled())
        losses, at = [], 0
        for size in batch.decoders.sizes:
            rows = slice(at, at + size)
            torch.index_select(w.table, 0, batch.read[rows], out=embedded[rows])
            torch.tanh(multiply(embedded[rows], w.E, w.e), out=x[rows])
            states.gates[rows] = multiply(x[rows], w.W, w.b)
            losses.append(scores.add(states.step(at, size, w.U), batch.labels[rows]))
            at += size
        ctx.save_for_backward(*weights)
        ctx.batch, ctx.states, ctx.kept = batch, states, (embedded, x, scores)
        hidden = states.h[k:]
        ctx.mark_non_differentiable(hidden)
        return torch.stack(losses).sum(), hidden

    @staticmethod
    def backward(ctx, dloss, _):  # type: ignore[no-untyped-def]
        w, states, decoders = DecoderWeights(*ctx.saved_tensors), ctx.states, ctx.batch.decoders
        embedded, x, scores = ctx.kept
        k = states.k
        dh, dW_out, _ = scores.gradients(states.h[k:], w.W_out, dloss)
        nothing = dh.new_zeros(k, dh.shape[1])
        d, dh_0, dc_0 = states.backward(w.U, dh, nothing, decoders.sizes, started=True)
        dx = aten.tanh_backward(multiply(d, w.W.t()), x)
        dtable = torch.sparse_coo_tensor(
            ctx.batch.read[None], multiply(dx, w.E.t()), w.table.shape, check_invariants=False
        )
        before, dt = states.h.index_select(0, decoders.before), d.t().contiguous()
        dweights = DecoderWeights(
            table=dtable,
            E=multiply(dx.t().contiguous(), embedded.t()),
            e=dx.sum(0),
            W=multiply(dt, x.t()),
            U=multiply(dt, before.t()),
            b=d.sum(0),
            W_out=dW_out,
        )
        return None, None, torch.cat([dh_0, dc_0], dim=1), *dweights


class AtOnceBatch(NamedTuple):
    """Mini-batch of pairs, and the plan of their decoders."""

    pairs: PairBatch
    decoders: Any


class LevelsAtOnce(PairsSideBySide):
    """Two LSTMs along whole sentences; one output layer over all words, without padding.

    The encoder runs like the decoder, except if that is padded, because a padded one has no last c.
    """

    def __init__(
        self, model: Model, recurrence: Recurrence | None = None, way: LossWay = "in_place"
    ) -> None:
        super().__init__(model, way)
        self.decoder = self.make_lstm("_target")
        self.recurrence = recurrence or Columnwise()

    def plan(self, pairs: Sequence[SentencePair], device: torch.device) -> AtOnceBatch:
        batch = plan_pairs(pairs, device)
        return AtOnceBatch(batch, self.recurrence.plan(batch.n_steps, device))

    def forward(self, batch: AtOnceBatch) -> tuple[Tensor, LateOutputs]:
        pairs = batch.pairs
        ranks = pairs.encoders.ranks
        h_0, c_0 = self.encode_sources(pairs, self.recurrence)
        start = h_0.index_select(0, ranks)[None], c_0.index_select(0, ranks)[None]
        x = self.embed_words(pairs.read, self.target_embedding, self.read_target)
        h = self.recurrence.run(self.decoder, x, batch.decoders, start, against=False)
        return self.output.loss(h, pairs.labels), self.output.defer_logits(h)


LEVELS = {"seq2seq": LevelsSeq2Seq, "seq2seq_at_once": LevelsAtOnce}
