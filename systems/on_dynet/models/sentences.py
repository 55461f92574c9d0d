"""Models of sentences in DyNet, written for one sentence or, for manual batching, a mini-batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import dynet as dy

from dynbatch.harness.models.bilstm import BiLSTM
from dynbatch.harness.models.bilstm_char import BiLSTMChar
from dynbatch.harness.models.birnn import BiRNN
from dynbatch.harness.models.parts.lstm import format_layer_suffix
from dynbatch.harness.models.var_lstm import VarLSTM
from dynbatch.harness.values.instances import Chain
from dynbatch.systems.on_dynet.layers import add_to_graph
from dynbatch.systems.on_dynet.runtime import ParameterStore
from dynbatch.systems.on_dynet.segments import GraphSegment

Sentence = tuple[list[int], list[int]]  # words, labels
Word = int | list[int]  # its id, or those of its letters if it is rare
SpelledSentence = tuple[list[Word], list[int]]  # words, labels


class Sentences:
    """Sentences as Python values."""

    def read(self, chain: Chain) -> Any:
        return chain.words.tolist(), chain.labels.tolist()


class VarLSTMNetwork(Sentences):
    """Equations of dynbatch.harness.models.var_lstm, with DyNet's own LSTM.

    All words of the mini-batch share one matmul with W_out, which is most of the arithmetic. Other
    forms, and LSTMs from other operators, are slower. vanilla_lstm_h is not used: it has the
    signature of vanilla_lstm_c, so that DyNet may batch a cell with an output.
    """

    def __init__(self, model: VarLSTM, store: ParameterStore) -> None:
        self.embedding = store.add_table("embedding")
        self.lstm = store.add_lstm(*(format_layer_suffix(k) for k in range(1, model.layers + 1)))
        self.classifier = [*store.add_vectors("b_out"), *store.add_matrices("W_out")]

    def build(self, sentences: Sequence[Sentence]) -> Iterator[GraphSegment]:
        """Yield expressions of the summed loss and of the logits of all words."""
        lookup, table, start = dy.lookup, self.embedding, self.lstm.initial_state()
        hidden: list[Any] = []
        labels: list[int] = []
        for words, of_sentence in sentences:
            hidden += start.transduce([lookup(table, word) for word in words])
            labels += of_sentence
        logits = self.compute_logits(dy.concatenate_to_batch(hidden))
        yield GraphSegment(dy.sum_batches(dy.pickneglogsoftmax_batch(logits, labels)), [logits])

    def compute_logits(self, hidden: Any) -> Any:
        """Return scores of the next words from the LSTM's outputs, a mini-batch of all words."""
        b_out, W_out = add_to_graph(self.classifier)
        return dy.affine_transform([b_out, W_out, hidden])


class VarLSTMSideBySide(VarLSTMNetwork):
    """VarLSTMNetwork whose steps each process all sentences that have not ended."""

    def build(self, sentences: Sequence[Sentence]) -> Iterator[GraphSegment]:
        words = [own for own, _ in sentences]
        labels = [label for _, own in sentences for label in own]
        hidden = read_side_by_side(self.lstm, [], self.embedding, words)
        logits = self.compute_logits(hidden)
        yield GraphSegment(dy.sum_batches(dy.pickneglogsoftmax_batch(logits, labels)), [logits])


class BiRNNNetwork(Sentences):
    """Equations of dynbatch.harness.models.birnn; the output layer is called once for all words."""

    def __init__(self, model: BiRNN, store: ParameterStore) -> None:
        self.embedding = store.add_table("embedding")
        self.cells = [
            [
                *store.add_vectors(f"b_{d}"),
                *store.add_matrices(f"W_{d}"),
                *store.add_matrices(f"U_{d}"),
            ]
            for d in model.copies["cell"]
        ]
        self.token = [*store.add_vectors("b_token"), *store.add_matrices("W_token", 2, axis=0)]

    def build(self, sentences: Sequence[Sentence]) -> Iterator[GraphSegment]:
        lookup, table = dy.lookup, self.embedding
        forward, backward = (add_to_graph(cell) for cell in self.cells)
        along: list[Any] = []
        against: list[Any] = []
        labels: list[int] = []
        for words, of_sentence in sentences:
            vectors = [lookup(table, word) for word in words]
            along += _compute_states(forward, vectors)
            against += reversed(_compute_states(backward, vectors[::-1]))
            labels += of_sentence
        b, W_forward, W_backward = add_to_graph(self.token)
        h_f, h_b = dy.concatenate_to_batch(along), dy.concatenate_to_batch(against)
        scores = dy.rectify(dy.affine_transform([b, W_forward, h_f, W_backward, h_b]))
        yield GraphSegment(dy.sum_batches(dy.pickneglogsoftmax_batch(scores, labels)), [scores])


def _compute_states(cell: Sequence[Any], vectors: Sequence[Any]) -> list[Any]:
    """Return the states of all words, in the order of reading."""
    affine, logistic = dy.affine_transform, dy.logistic
    b, W, U = cell
    states = [logistic(affine([b, W, vectors[0]]))]
    for x in vectors[1:]:
        states.append(logistic(affine([b, W, x, U, states[-1]])))
    return states


class Direction:
    """Stack of LSTMs that read a sentence in one direction, from learned states."""

    def __init__(self, store: ParameterStore, name: str, n_layers: int) -> None:
        suffixes = [f"_{name}{format_layer_suffix(k)}" for k in range(1, n_layers + 1)]
        self.lstm = store.add_lstm(*suffixes)
        self._first = [store.add_vectors(f"{s}_0{suffix}")[0] for s in "ch" for suffix in suffixes]

    def build_first_states(self) -> list[Any]:
        """Return expressions of the states before the first word: all cells, then all outputs."""
        return add_to_graph(self._first)


class Tagger:
    """Stacks of LSTMs in both directions, with tanh and a classifier on top."""

    def __init__(self, store: ParameterStore, n_layers: int) -> None:
        self.directions = [Direction(store, d, n_layers) for d in ("forward", "backward")]
        self.classifier = [*store.add_vectors("b_tag"), *store.add_matrices("W_tag", 2, axis=0)]
        self.classifier += store.add_matrices("W_out")

    def begin(self) -> None:
        self._starts = [d.lstm.initial_state(d.build_first_states()) for d in self.directions]
        self._expressions = add_to_graph(self.classifier)

    def score_sentence(self, vectors: list[Any]) -> Iterator[Any]:
        """Return scores of the tags of every word of a sentence, from the words' vectors."""
        forward, backward = self._starts
        there = forward.transduce(vectors)
        back = backward.transduce(vectors[::-1])
        return map(self.compute_logits, there, reversed(back))

    def compute_logits(self, h_forward: Any, h_backward: Any) -> Any:
        """Return scores of the tags, from the outputs of both directions."""
        b, W_forward, W_backward, W_out = self._expressions
        t = dy.tanh(dy.affine_transform([b, W_forward, h_forward, W_backward, h_backward]))
        return W_out * t


class BiLSTMNetwork(Sentences):
    """Equations of dynbatch.harness.models.bilstm, with DyNet's own LSTM."""

    def __init__(self, model: BiLSTM, store: ParameterStore) -> None:
        self.embedding = store.add_table("embedding")
        self.tagger = Tagger(store, model.layers)

    def build(self, sentences: Sequence[Sentence]) -> Iterator[GraphSegment]:
        self.tagger.begin()
        lookup, table = dy.lookup, self.embedding
        logits: list[Any] = []
        labels: list[int] = []
        for words, of_sentence in sentences:
            logits += self.tagger.score_sentence([lookup(table, word) for word in words])
            labels += of_sentence
        yield GraphSegment(dy.esum(list(map(dy.pickneglogsoftmax, logits, labels))), logits)


class BiLSTMSideBySide(BiLSTMNetwork):
    """BiLSTMNetwork whose steps each process all sentences that have not ended."""

    def build(self, sentences: Sequence[Sentence]) -> Iterator[GraphSegment]:
        self.tagger.begin()
        words = [own for own, _ in sentences]
        labels = [label for _, own in sentences for label in own]
        logits = self.tagger.compute_logits(*self._read_both_ways(words))
        yield GraphSegment(dy.sum_batches(dy.pickneglogsoftmax_batch(logits, labels)), [logits])

    def _read_both_ways(self, words: list[list[int]]) -> Iterator[Any]:
        for direction, backward in zip(self.tagger.directions, (False, True), strict=True):
            yield read_side_by_side(
                direction.lstm,
                direction.build_first_states(),
                self.embedding,
                words,
                backward=backward,
            )


class BiLSTMCharNetwork:
    """Equations of dynbatch.harness.models.bilstm_char."""

    def __init__(self, model: BiLSTMChar, store: ParameterStore) -> None:
        self.embedding = store.add_table("embedding")
        self.characters = store.add_table("characters")
        self.spelling = [store.add_lstm("_spell"), store.add_lstm("_spell_back")]
        self.tagger = Tagger(store, n_layers=1)

    def read(self, chain: Chain) -> SpelledSentence:
        """Return words as Python numbers or lists of letters, and labels."""
        letters = chain.characters.tolist()
        spans = pairwise(chain.char_start.tolist())
        word_spans = zip(chain.words.tolist(), spans, strict=True)
        return [letters[a:b] or word for word, (a, b) in word_spans], chain.labels.tolist()

    def build(self, sentences: Sequence[SpelledSentence]) -> Iterator[GraphSegment]:
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
            logits += self.tagger.score_sentence(vectors)
            labels += of_sentence
        yield GraphSegment(dy.esum(list(map(dy.pickneglogsoftmax, logits, labels))), logits)


def read_side_by_side(
    lstm: Any,
    first: Sequence[Any],
    table: Any,
    sentences: Sequence[Sequence[int]],
    *,
    backward: bool = False,
) -> Any:
    """Return the outputs of an LSTM over several sentences as a mini-batch of all words, in order.

    The longest sentence comes first, and a sentence that has ended leaves the mini-batch. Nothing
    is padded, which is 1.2 to 1.9 times as fast as padding.

    Args:
        first: its states before a sentence; empty if they are zeros.
        table: lookup parameter of the words' vectors.
        backward: read every sentence from its end.
    """
    ranks = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
    longest_first = [sentences[i][::-1] if backward else sentences[i] for i in ranks]
    n_going = len(sentences)
    starting = [dy.concatenate_to_batch([part] * n_going) for part in first]
    state = lstm.initial_state(starting or None)
    outputs: list[Any] = []
    step_starts = [0]
    for step in range(len(longest_first[0])):
        n_before = n_going
        while len(longest_first[n_going - 1]) <= step:
            n_going -= 1
        if n_going < n_before:
            going = list(range(n_going))
            state = state.set_s([dy.pick_batch_elems(part, going) for part in state.s()])
        words = [words[step] for words in longest_first[:n_going]]
        state = state.add_input(dy.lookup_batch(table, words))
        outputs.append(state.output())
        step_starts.append(step_starts[-1] + n_going)
    positions = [0] * len(ranks)
    for position, i in enumerate(ranks):
        positions[i] = position
    rows = [
        step_starts[step] + position
        for position, words in zip(positions, sentences, strict=True)
        for step in (reversed(range(len(words))) if backward else range(len(words)))
    ]
    return dy.pick_batch_elems(dy.concatenate_to_batch(outputs), rows)


NETWORKS = {
    "var_lstm": VarLSTMNetwork,
    "birnn": BiRNNNetwork,
    "bilstm": BiLSTMNetwork,
    "bilstm_char": BiLSTMCharNetwork,
}
MANUAL = {
    "var_lstm": VarLSTMSideBySide,
    "bilstm": BiLSTMSideBySide,
}
