"""Tagged sentences from a seed with the length statistics of WikiNER English.

They replace the corpus if it is not available, and are labeled synthetic everywhere. The tables
below were measured on its development part with its own vocabulary (1,696 sentences; 39,007 words,
23.00 per sentence, 1 to 144; 8,504 distinct words, of which 1,078 occur five times or more; the
others are 28.9% of the text and have 6.83 letters on average): quantiles of the lengths of
sentences and of rare words, fractions that belong to the most frequent words and letters, and
frequencies of tags. Everything is drawn independently, but a word has the same letters wherever it
occurs. The real training part has fewer rare words, because it is larger; here, the training split
has ten times as many sentences as the development part.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dynbatch.datasets.parts.drawing import Key, convert_to_ranks, draw_length, generate_corpus
from dynbatch.harness.contracts.corpus import Corpus
from dynbatch.harness.contracts.home import SPLITS
from dynbatch.harness.values.arrays import as_int_array, draw_uniforms
from dynbatch.harness.values.checked import Seed
from dynbatch.harness.values.instances import Chain

NAME = "wikiner_synthetic"
N_INSTANCES = {"train": 16_960, "dev": 1696, "test": 1696}
N_WORDS, N_FREQUENT, N_LETTERS = 8504, 1078, 155  # without unknown words and letters
PAD = 0  # padding letter before the first and after the last letter

# Quantiles of the number of words in a sentence, and of letters in a rare word.
LENGTHS = (
    *(0.5, 7.8, 9.5, 11.3, 12.7, 14.0, 15.3, 16.7, 17.9, 19.2, 20.4, 21.7, 23.3, 24.8, 26.3, 28.7),
    *(31.4, 34.8, 39.9, 47.7, 56.4, 66.5, 77.3, 144.5),
)
SPELLINGS = (
    *(0.5, 3.1, 3.8, 4.1, 4.5, 4.9, 5.3, 5.6, 6.0, 6.3, 6.6, 6.9, 7.3, 7.6, 8.0, 8.4),
    *(8.9, 9.5, 10.3, 11.4, 12.4, 13.5, 14.5, 26.5),
)
# The n most frequent words, for n in RANKS, are these fractions of all words; likewise for the
# letters of rare words.
RANKS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, N_FREQUENT, 2048, 4096, N_WORDS)
SHARES = (
    *(0, 0.0534, 0.1062, 0.1753, 0.2581, 0.326, 0.3902, 0.4398, 0.49, 0.5511, 0.6226, 0.7039),
    *(0.7108, 0.7958, 0.887, 1),
)
LETTER_RANKS = (0, 1, 2, 4, 8, 16, 32, 64, N_LETTERS)
LETTER_SHARES = (0, 0.1092, 0.1855, 0.3302, 0.5889, 0.8268, 0.9398, 0.9966, 1)
# Cumulative frequencies of O, I-ORG, I-PER, I-LOC and I-MISC.
TAGS = (0.8351, 0.8853, 0.9272, 0.9643, 1)


def load(split: str, root: Path | None, seed: Seed = 0) -> Corpus:
    """Generate sentences, each from seed, split and index; rare words are spelled out."""

    def build(key: Key) -> Chain:
        length = draw_length(key, LENGTHS)
        words = convert_to_ranks(draw_uniforms(length, *key, 1), SHARES, RANKS)
        spelled = [
            _draw_spelling(seed, word) if word >= N_FREQUENT else [] for word in words.tolist()
        ]
        return Chain(
            words=as_int_array(words),
            labels=as_int_array(
                np.searchsorted(TAGS, draw_uniforms(length, *key, 2), side="right")
            ),
            char_start=as_int_array(np.cumsum([0, *map(len, spelled)])),
            characters=as_int_array([letter for letters in spelled for letter in letters]),
        )

    return generate_corpus(
        NAME,
        split,
        N_INSTANCES[split],
        build,
        {"words": N_WORDS + 1, "characters": N_LETTERS + 2, "classes": len(TAGS)},
        "generated from a seed with the length statistics of WikiNER English",
        {"seed": seed},
    )


def _draw_spelling(seed: int, word: int) -> list[int]:
    """Draw the letters of a word, with a padding letter on both sides."""
    key = (seed, len(SPLITS), word)
    length = draw_length(key, SPELLINGS)
    drawn = convert_to_ranks(draw_uniforms(length, *key, 1), LETTER_SHARES, LETTER_RANKS)
    return [PAD, *(1 + drawn).tolist(), PAD]
