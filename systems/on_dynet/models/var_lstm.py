"""Var-LSTM language model in DyNet: LSTMs written for one sentence, one product for all words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dynet as dy

from harness.models.parts.lstm import layer_suffix
from harness.models.var_lstm import VarLSTM
from harness.values.instances import Chain
from systems.on_dynet.rounds import Round
from systems.on_dynet.runtime import ParameterStore

Sentence = tuple[list[int], list[int]]  # words, labels


class Network:
    """Equations of harness.models.var_lstm, with DyNet's own LSTM.

    All words of the mini-batch share one product with W_out, since it is most of the arithmetic.
    Measured against the other ways to write it (source build, PTB sentences, hidden 256, batch 64,
    sentences/s by agenda, depth and off): this one 352, 343 and 88; one product a sentence 341, 270
    and 22; one a word, which is left to DyNet, 271, 262 and 14. Without the classifier the LSTM
    itself, sentences/s by agenda at hidden 256 and 512: DyNet's own 942 and 398; one affine
    transform a gate 853 and 338; one of all gates and pick_range 887 and 388; vanilla_lstm_gates
    and vanilla_lstm_c 907 and 370; W x apart from U h 924 and 436. vanilla_lstm_h has the
    signature of vanilla_lstm_c, so that DyNet may batch a cell with an output: not used.
    """

    def __init__(self, model: VarLSTM, store: ParameterStore) -> None:
        self.embedding = store.table("embedding")
        self.lstm = store.lstm(*(layer_suffix(k) for k in range(1, model.layers + 1)))
        self.classifier = [*store.vectors("b_out"), *store.matrices("W_out")]

    def read(self, chain: Chain) -> Sentence:
        """A sentence as a DyNet program holds it: lists of Python numbers."""
        return chain.words.tolist(), chain.labels.tolist()

    def build(self, sentences: Sequence[Sentence]) -> Iterator[Round]:
        """Expressions of the summed loss and of the logits of all words."""
        lookup, table, start = dy.lookup, self.embedding, self.lstm.initial_state()
        hidden: list[Any] = []
        labels: list[int] = []
        for words, of_sentence in sentences:
            hidden += start.transduce([lookup(table, word) for word in words])
            labels += of_sentence
        logits = self.logits(dy.concatenate_to_batch(hidden))
        yield Round(dy.sum_batches(dy.pickneglogsoftmax_batch(logits, labels)), [logits])

    def logits(self, hidden: Any) -> Any:
        """Scores of the next words from the LSTM's outputs, a mini-batch of all words."""
        # Without True, DyNet would take the parameter for a constant, and give no gradient.
        b_out, W_out = (p.expr(True) for p in self.classifier)
        return dy.affine_transform([b_out, W_out, hidden])


NETWORKS = {"var_lstm": Network}
