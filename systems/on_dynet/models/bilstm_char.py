"""BiLSTM tagger with characters for rare words in DyNet, written for one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import dynet as dy

from harness.models.bilstm_char import BiLSTMChar
from harness.values.instances import Chain
from systems.on_dynet.rounds import Round
from systems.on_dynet.runtime import ParameterStore
from systems.on_dynet.tagger import Tagger

Word = int | list[int]  # its number, or its letters' where it is rare
Sentence = tuple[list[Word], list[int]]  # words, labels


class Network:
    """Equations of harness.models.bilstm_char."""

    def __init__(self, model: BiLSTMChar, store: ParameterStore) -> None:
        self.embedding = store.table("embedding")
        self.characters = store.table("characters")
        self.spelling = [store.lstm("_spell"), store.lstm("_spell_back")]
        self.tagger = Tagger(store, n_layers=1)

    def read(self, chain: Chain) -> Sentence:
        """A sentence as a DyNet program holds it: Python numbers, lists of letters."""
        letters = chain.characters.tolist()
        spans = pairwise(chain.char_start.tolist())
        words = zip(chain.words.tolist(), spans, strict=True)
        return [letters[a:b] or word for word, (a, b) in words], chain.labels.tolist()

    def build(self, sentences: Sequence[Sentence]) -> Iterator[Round]:
        """Expressions of the summed loss and of the logits of every word."""
        self.tagger.begin()
        lookup, table = dy.lookup, self.embedding
        there, back = (lstm.initial_state() for lstm in self.spelling)
        logits: list[Any] = []
        labels: list[int] = []
        for words, of_sentence in sentences:
            vectors = []
            for word in words:
                if isinstance(word, int):
                    vectors.append(lookup(table, word))
                else:
                    letters = [lookup(self.characters, letter) for letter in word]
                    last = [there.transduce(letters)[-1], back.transduce(letters[::-1])[-1]]
                    vectors.append(dy.concatenate(last))
            logits += self.tagger.sentence(vectors)
            labels += of_sentence
        yield Round(dy.esum(list(map(dy.pickneglogsoftmax, logits, labels))), logits)


NETWORKS = {"bilstm_char": Network}
