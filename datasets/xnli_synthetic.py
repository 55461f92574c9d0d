"""Sentences from a seed, about as long as those of XNLI's English part; labels are random.

They replace the corpus (Conneau et al., "XNLI: Evaluating Cross-lingual Sentence Representations",
EMNLP 2018), and are labeled synthetic everywhere. All lengths are assumptions without a source:
premises have 21.2 and hypotheses 10.7 words on average, both are equally likely, and lengths are
log-normal. Word frequencies follow Zipf's law.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist

import numpy as np

from dynbatch.datasets.parts.drawing import Key, generate_corpus
from dynbatch.harness.contracts.corpus import Corpus
from dynbatch.harness.values.arrays import as_int_array, draw_uniforms
from dynbatch.harness.values.checked import Count, CountOrNone, Seed
from dynbatch.harness.values.instances import Chain

NAME = "xnli_synthetic"
N_INSTANCES = {"train": 20_000, "dev": 4980, "test": 10_020}  # two per pair; dev and test in full
N_WORDS = 20_000
MEANS = {"premise": 21.2, "hypothesis": 10.7}  # words; assumed
SPREADS = {"premise": 0.6, "hypothesis": 0.4}  # of the logarithm of a length
LONGEST = 128


def load(
    split: str, root: Path | None, length: CountOrNone = 0, n_classes: Count = 16, seed: Seed = 0
) -> Corpus:
    """Generate sentences, each from seed, split and index.

    Args:
        length: 0 for varying lengths; otherwise the number of words of every sentence (128 for an
            encoder of sentences of equal length).
    """

    def build(key: Key) -> Chain:
        n = length or _draw_length(*draw_uniforms(2, *key, 0).tolist())
        ranks = np.exp(draw_uniforms(n, *key, 1) * math.log(N_WORDS))
        labels = draw_uniforms(n, *key, 2) * n_classes
        return Chain(as_int_array(ranks.astype("i4") - 1), as_int_array(labels.astype("i4")))

    return generate_corpus(
        NAME,
        split,
        N_INSTANCES[split],
        build,
        {"words": N_WORDS, "classes": n_classes},
        "generated from a seed; lengths in the manner of XNLI's English sentences, assumed",
        {"length": length, "n_classes": n_classes, "seed": seed},
    )


def _draw_length(kind: float, quantile: float) -> int:
    """Return the number of words of a sentence.

    Args:
        kind: uniform number in [0, 1) that chooses premise or hypothesis.
        quantile: uniform number in [0, 1), the quantile of the length.
    """
    name = "premise" if kind < 0.5 else "hypothesis"
    spread = SPREADS[name]
    normal = NormalDist().inv_cdf(min(max(quantile, 1e-9), 1 - 1e-9))
    drawn = MEANS[name] * math.exp(spread * normal - spread**2 / 2)
    return min(LONGEST, max(2, round(drawn)))
