"""The encoder-decoder of seq2seq with all words given at once, as translation is mostly trained.

Nothing waits for a step's distribution, so that whatever lies beside the recurrence (words, scores)
may be computed for all steps together, and both LSTMs be called for whole sentences.
"""

from __future__ import annotations

from harness.models.seq2seq import Seq2Seq


class Seq2SeqAtOnce(Seq2Seq):
    """Equations and parameters of Seq2Seq; a mini-batch has one round."""

    name = "seq2seq_at_once"
    waits = False
