"""Sentences from a seed with the lengths of the Penn Treebank: ptb_synthetic, ptb_fixed_synthetic.

They replace the text if it is not available, and are labeled synthetic everywhere. The tables below
were measured on its development and test parts together (7,131 sentences; 156,190 words including
ends of sentences, 21.90 per sentence, 2 to 78; 7,595 distinct words without the end): quantiles of
the length, and fractions of all words that are the most frequent ones. Words are drawn
independently. The training split has the published number of sentences.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dynbatch.datasets.parts.drawing import Key, convert_to_ranks, draw_length, generate_corpus
from dynbatch.harness.contracts.corpus import Corpus
from dynbatch.harness.values.arrays import IntArray, as_int_array, draw_uniforms
from dynbatch.harness.values.checked import CountOrNone, Seed
from dynbatch.harness.values.instances import Chain

NAME = "ptb_synthetic"
N_WORDS = 10_000  # including the end of a sentence
END = 0
N_SENTENCES = {"train": 42_068, "dev": 3370, "test": 3761}
N_TOKENS = {"train": 929_589, "dev": 73_760, "test": 82_430}  # including ends of sentences

# Quantiles of the number of words, including the end of the sentence.
LENGTHS = (
    *(1.5, 6.9, 9.5, 11.4, 13.0, 14.4, 15.8, 17.2, 18.5, 19.7, 21.1, 22.5, 23.7, 25.1, 26.7, 28.3),
    *(30.1, 32.3, 35.4, 39.8, 43.6, 48.8, 52.9, 78.5),
)
MEAN_LENGTH = 21.9
# The n most frequent words, for n in RANKS, are these fractions of all words without ends.
RANKS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, N_WORDS - 1)
SHARES = (
    *(0, 0.058, 0.1136, 0.175, 0.2643, 0.3339, 0.409, 0.4855, 0.5599, 0.6359, 0.7194, 0.8074),
    *(0.8909, 0.9608, 1),
)


def load(
    split: str,
    root: Path | None,
    seed: Seed = 0,
    steps: CountOrNone = 0,
    vocab_modulo: CountOrNone = 0,
) -> Corpus:
    """Generate as many sentences as the real split has; each depends on seed, split and index.

    Args:
        steps: 0 for sentences; otherwise the number of words of each instance (Fixed-LSTM). There
            are as many instances as the text of the real split has.
    """
    name = "ptb_fixed_synthetic" if steps else NAME

    def build(key: Key) -> Chain:
        words = _draw_piece(steps, key) if steps else _draw_sentence(key)
        words = words % vocab_modulo if vocab_modulo else words
        return Chain(words[:-1], words[1:])

    return generate_corpus(
        name,
        split,
        max(1, N_TOKENS[split] // steps if steps else N_SENTENCES[split]),
        build,
        {"words": vocab_modulo or N_WORDS},
        "generated from a seed with the length statistics of the Penn Treebank",
        {"seed": seed, "steps": steps, "vocab_modulo": vocab_modulo},
    )


def _draw_sentence(key: Key) -> IntArray:
    length = draw_length(key, LENGTHS, least=2)
    return as_int_array([END, *_draw_words(length - 1, key), END])


def _draw_piece(steps: int, key: Key) -> IntArray:
    """Draw a piece of text and the word after it; a sentence may end at any word."""
    words = _draw_words(steps + 1, key)
    ends = draw_uniforms(steps + 1, *key, 0) * MEAN_LENGTH < 1
    return as_int_array(np.where(ends, END, words))


def _draw_words(n: int, key: Key) -> IntArray:
    return as_int_array(1 + convert_to_ranks(draw_uniforms(n, *key, 1), SHARES, RANKS))
