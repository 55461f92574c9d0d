"""Lattices from a seed with the shape statistics of ED-Batch's Weibo lattices.

They replace those lattices if they are not available, and are labeled synthetic everywhere. The
tables below were measured on the training split of weibo_lattice (1,147 lattices, 49,471
characters, 26,777 words):

- quantiles of the number of characters;
- probabilities that a two-character word ends at a character, given whether one ends at each of the
  three characters before it;
- probabilities that a longer word ends there, given the shorter words in it, because most long
  words contain a short one at either end;
- fractions of arcs that belong to the most frequent characters and words;
- frequencies of tags.

Everything else is drawn independently. Rare words are therefore fewer than in the corpus, the
number of words varies less between sentences, and five arcs into one state are rarer.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dynbatch.datasets.parts.drawing import Key, convert_to_ranks, draw_length, generate_corpus
from dynbatch.datasets.parts.reading import TableRows
from dynbatch.harness.contracts.corpus import Corpus
from dynbatch.harness.values.arrays import as_int_array, draw_uniforms
from dynbatch.harness.values.checked import CountOrNone, Seed
from dynbatch.harness.values.instances import Lattice

NAME = "lattice_synthetic"
N_CLASSES = 18
N_INSTANCES = {"train": 1147, "dev": 113, "test": 316}
N_CHARACTERS, N_WORDS = 2212, 10_130  # ids of the training split, without unknown ones

# Quantiles of the number of characters.
LENGTHS = (
    *(1.5, 10.5, 13.5, 17.5, 19.5, 22.5, 25.5, 28.5, 31.5, 34.5, 38.5, 41.5, 45.1, 48.5, 52.5),
    *(58.5, 64.5, 72.5, 82.5, 97.5, 109.9, 126.5, 138.5, 211.0),
)
# P(a two-character word ends here), indexed by three bits: one ends at the previous character (4),
# at the second last (2) and at the third last (1). Separate tables are for the first possible
# character and for the last two characters, because the last is usually a full stop.
TWO_FIRST = (0.679, 0, 0, 0, 0, 0, 0, 0)  # no word can end before it
TWO = (0.544, 0.656, 0.5, 0.513, 0.32, 0.309, 0.568, 0.438)
TWO_BEFORE_LAST = (0.741, 0.888, 0.9, 0.889, 0.451, 0.455, 0.827, 0.733)
TWO_LAST = (0.152, 0.146, 0.216, 0.208, 0.009, 0.028, 0.117, 0.05)
# P(a three-character word ends here), indexed by two bits: a two-character word is its start (2)
# and its end (1). The first table is for the first possible character.
THREE_FIRST = (0.0637, 0.0333, 0.0847, 0.5176)
THREE = (0.004, 0.0126, 0.0407, 0.2384)
# Words become rarer along a lattice: factors of TWO and THREE at its start and from character FADED
# on, linear in between.
TWO_FADES, THREE_FADES, FADED = (1.05, 0.97), (1.15, 0.9), 60
# P(a four-character word ends here), indexed by four bits: it contains a three-character word (8),
# and a two-character word at its start (4), in its middle (2) and at its end (1).
FOUR = (
    *(0.0018, 0.0011, 0.0, 0.0011, 0.0036, 0.0137, 0.001, 0.0114),
    *(0.013, 0.0192, 0.0188, 0.0036, 0.1303, 0.1962, 0.024, 0.1728),
)
# The same for words of five to eight characters, indexed as THREE.
LONGER = {
    5: (0.0001, 0.0006, 0.0015, 0.0095),
    6: (0.0001, 0.0002, 0.0003, 0.0024),
    7: (0.0001, 0.0, 0.0001, 0.0003),
    8: (0.0, 0.0, 0.0006, 0.0),
}
# The n most frequent characters or words, for n in RANKS, have these fractions of their arcs.
RANKS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
CHARACTER_RANKS = (*RANKS, N_CHARACTERS)
CHARACTER_SHARES = (
    *(0, 0.038, 0.0686, 0.1031, 0.1488, 0.2011, 0.2717, 0.3679, 0.4987, 0.6663, 0.8281, 0.9469),
    *(0.9968, 1),
)
WORD_RANKS = (*RANKS, 4096, 8192, N_WORDS)
WORD_SHARES = (
    *(0, 0.0127, 0.0201, 0.0309, 0.0456, 0.0678, 0.0975, 0.1405, 0.2013, 0.2813, 0.3831, 0.5037),
    *(0.6402, 0.7765, 0.9295, 1),
)
# Cumulative frequencies of tags 0 to 17 at characters.
TAGS = (
    *(0, 0.01, 0.02, 0.8758, 0.8862, 0.913, 0.9234, 0.9463, 0.9536, 0.9766, 0.9888, 0.9917, 0.9945),
    *(0.9982, 0.9983, 0.9999, 0.99995, 1),
)


def load(split: str, root: Path | None, seed: Seed = 0, vocab_modulo: CountOrNone = 0) -> Corpus:
    """Generate as many lattices as the real split has; each depends on seed, split and index."""
    characters = TableRows(N_CHARACTERS, vocab_modulo)
    words = TableRows(N_WORDS, vocab_modulo)

    def build(key: Key) -> Lattice:
        return _draw_lattice(key, characters, words)

    return generate_corpus(
        NAME,
        split,
        N_INSTANCES[split],
        build,
        {"words": words.size, "characters": characters.size, "classes": N_CLASSES},
        "generated from a seed with the shape statistics of ED-Batch's Weibo lattices",
        {"seed": seed, "vocab_modulo": vocab_modulo},
        kind="lattice",
    )


def _draw_lattice(key: Key, characters: TableRows, words: TableRows) -> Lattice:
    """Draw one lattice; words into a state are sorted by falling length, as in the real files."""
    length = draw_length(key, LENGTHS)
    ends = _draw_word_lengths(length, key)
    n_arcs = [0, *(1 + len(lengths) for lengths in ends)]
    sources = [
        source
        for state, lengths in enumerate(ends, 1)
        for source in (state - 1, *(state - n for n in lengths))
    ]
    arc_start = as_int_array(np.cumsum([0, *n_arcs]))
    numbers = draw_uniforms(len(sources), *key, 2)
    tokens = words.find_rows(convert_to_ranks(numbers, WORD_SHARES, WORD_RANKS)).copy()
    first = arc_start[1:-1]
    tokens[first] = characters.find_rows(
        convert_to_ranks(numbers[first], CHARACTER_SHARES, CHARACTER_RANKS)
    )
    tags = np.searchsorted(TAGS, draw_uniforms(length, *key, 3), side="right")
    return Lattice(
        tags=as_int_array([0, *tags]),
        arc_start=arc_start,
        sources=as_int_array(sources),
        tokens=tokens,
    )


def _draw_word_lengths(length: int, key: Key) -> list[list[int]]:
    """Draw the lengths of the words that end with each of `length` characters."""
    numbers = draw_uniforms(7 * length, *key, 1).reshape(length, 7).tolist()
    two = [False] * 4 + [False] * length  # two[i + 4]: a word of two characters ends at i
    three = [False] * length
    ends: list[list[int]] = []
    for i, drawn in enumerate(numbers):
        before = 4 * two[i + 3] + 2 * two[i + 2] + two[i + 1]
        two[i + 4] = i > 0 and drawn[0] < _select_chances(i, length)[before] * _compute_fade(
            TWO_FADES, i
        )
        edges = 2 * two[i + 3] + two[i + 4]
        three[i] = i > 1 and drawn[1] < (
            THREE_FIRST[edges] if i == 2 else THREE[edges] * _compute_fade(THREE_FADES, i)
        )
        lengths = [2] * two[i + 4] + [3] * three[i]
        if i > 2:
            holds = 4 * two[i + 2] + 2 * two[i + 3] + two[i + 4]
            if drawn[2] < FOUR[8 * (three[i] or three[i - 1]) + holds]:
                lengths.append(4)
        for n, chances in LONGER.items():
            if i >= n - 1 and drawn[n - 2] < chances[2 * two[i + 6 - n] + two[i + 4]]:
                lengths.append(n)
        ends.append(lengths[::-1])
    return ends


def _select_chances(i: int, length: int) -> tuple[float, ...]:
    """Return the probability table of two-character words for character i of `length`."""
    if i >= length - 2:
        return TWO_LAST if i == length - 1 else TWO_BEFORE_LAST
    return TWO_FIRST if i == 1 else TWO


def _compute_fade(factors: tuple[float, float], i: int) -> float:
    """Return the factor of word probabilities at character i."""
    begin, end = factors
    return begin + (end - begin) * min(1.0, i / FADED)
