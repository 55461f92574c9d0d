"""Encoder-decoder of seq2seq with all words given in advance, as in most translation training.

No step waits for the previous distribution. Everything outside the recurrence (words, scores) can
be computed for all steps together, and each LSTM can be called for whole sentences.
"""

from __future__ import annotations

from dynbatch.harness.models.seq2seq import Seq2Seq


class Seq2SeqAtOnce(Seq2Seq):
    """Encoder-decoder with the equations and parameters of Seq2Seq, and a single graph segment."""

    name = "seq2seq_at_once"
    waits = False
