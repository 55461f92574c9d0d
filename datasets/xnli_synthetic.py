"""Sentences from a seed, about as long as those of XNLI's English part; labels are random.

They stand in for the corpus (Conneau et al., "XNLI: Evaluating Cross-lingual Sentence
Representations", EMNLP 2018), and are called synthetic wherever they appear. All of their lengths
are assumed, none is taken from a source: 21.2 words of a premise and 10.7 of a hypothesis on
average, either kind of sentence as likely, lengths log-normal. A word's frequency falls with its
rank (Zipf).
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist

import numpy as np

from datasets.parts.drawing import Key, generated
from harness.contracts.corpus import Corpus
from harness.errors import ConfigError
from harness.values.arrays import int_array, uniforms
from harness.values.instances import Chain

NAME = "xnli_synthetic"
N_INSTANCES = {"train": 20_000, "dev": 4980, "test": 10_020}  # two a pair; all of dev and test
N_WORDS = 20_000
MEANS = {"premise": 21.2, "hypothesis": 10.7}  # words; assumed
SPREADS = {"premise": 0.6, "hypothesis": 0.4}  # of the logarithm of a length
LONGEST = 128


def load(
    split: str, root: Path | None, length: int = 0, n_classes: int = 16, seed: int = 0
) -> Corpus:
    """Generate sentences, each from seed, split and index.

    length: 0, or of every sentence (128 for an encoder that takes sentences of one length).

    Raises ConfigError for a length below 0 or no classes.
    """
    if length < 0 or n_classes < 1:
        raise ConfigError(
            f"length={length}, n_classes={n_classes} is not allowed; give at least 0 and 1"
        )

    def build(key: Key) -> Chain:
        n = length or _length(*uniforms(2, *key, 0).tolist())
        ranks = np.exp(uniforms(n, *key, 1) * math.log(N_WORDS))
        labels = uniforms(n, *key, 2) * n_classes
        return Chain(int_array(ranks.astype("i4") - 1), int_array(labels.astype("i4")))

    return generated(
        NAME,
        split,
        N_INSTANCES[split],
        build,
        {"words": N_WORDS, "classes": n_classes},
        "generated from a seed; lengths in the manner of XNLI's English sentences, assumed",
        {"length": length, "n_classes": n_classes, "seed": seed},
    )


def _length(kind: float, place: float) -> int:
    """Words of a sentence, from two numbers in [0, 1)."""
    name = "premise" if kind < 0.5 else "hypothesis"
    spread = SPREADS[name]
    normal = NormalDist().inv_cdf(min(max(place, 1e-9), 1 - 1e-9))
    drawn = MEANS[name] * math.exp(spread * normal - spread**2 / 2)
    return min(LONGEST, max(2, round(drawn)))
