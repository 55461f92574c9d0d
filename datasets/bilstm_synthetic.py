"""Random sentences of equal length with random tags: the data of DyNet's synthetic BiLSTM.

Source: Neubig, Goldberg and Dyer, "On-the-fly Operation Batching in Dynamic Computation Graphs",
NIPS 2017, Figure 2: 40 words per sentence, a vocabulary of 1,000 words, 300 classes.
"""

from __future__ import annotations

from pathlib import Path

from dynbatch.datasets.parts.drawing import Key, generate_corpus
from dynbatch.harness.contracts.corpus import Corpus
from dynbatch.harness.values.arrays import as_int_array, draw_uniforms
from dynbatch.harness.values.checked import Count, Seed
from dynbatch.harness.values.instances import Chain

NAME = "bilstm_synthetic"


def load(
    split: str,
    root: Path | None,
    length: Count = 40,
    n_words: Count = 1000,
    n_classes: Count = 300,
    n_instances: Count = 1024,
    seed: Seed = 0,
) -> Corpus:
    """Generate sentences of `length` words; words and tags are drawn uniformly."""

    def build(key: Key) -> Chain:
        drawn = draw_uniforms(2 * length, *key)
        return Chain(
            as_int_array((drawn[:length] * n_words).astype("i4")),
            as_int_array((drawn[length:] * n_classes).astype("i4")),
        )

    arguments = {"length": length, "n_words": n_words, "n_classes": n_classes}
    arguments |= {"n_instances": n_instances, "seed": seed}
    sizes = {"words": n_words, "classes": n_classes}
    source = f"random sentences of {length} words, generated as the benchmark defines"
    return generate_corpus(
        NAME, split, n_instances, build, sizes, source, arguments, synthetic=False
    )
