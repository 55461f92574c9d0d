"""Stanford Sentiment Treebank: binary trees with one of five labels at every vertex.

Source: Socher et al., EMNLP 2013, https://nlp.stanford.edu/sentiment/. 8544, 1101 and 2210 trees;
the training split has 163 563 leaves, 155 019 internal vertices and 18 280 words (ED-Batch's
release counts 163 599, 155 049 and 18 283, because it puts 6 toy trees before them).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from datasets.reading.lazy import LazyInstances
from datasets.reading.parts import decoded
from datasets.reading.sexpressions import parse_tree, words_of
from datasets.reading.vocabulary import Vocabulary, vocabulary_of
from harness.contracts.corpus import Corpus
from harness.contracts.home import Archive, Checksums, checksum_of, read_checked
from harness.errors import DataError
from harness.values.instances import Tree

NAME = "sst"
N_CLASSES = 5
HOME = Archive(
    url="https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip",
    folder="sst",
    members={split: f"trees/{split}.txt" for split in ("train", "dev", "test")},
    n_bytes={"train": 2160058, "dev": 280825, "test": 559614},
)


def load(split: str, root: Path | None, sha256: Checksums = None, vocab_modulo: int = 0) -> Corpus:
    """Load root/sst/<split>.txt; words are numbered by first appearance in the training split.

    sha256: expected checksum per split. A file that has it is known to be well formed, so its trees
    are parsed when asked for; without checksums every tree is parsed, and so checked, at once.
    vocab_modulo: see datasets.reading.vocabulary.

    Raises DataError for a missing, empty or malformed file (file:line), or a wrong checksum.
    """
    if root is None:
        raise DataError("sst needs a data_root; set BENCH_DATA to the folder that holds sst/")
    lines, digest = _read(root, split, sha256)
    train_lines = lines if split == "train" else _read(root, "train", sha256)[0]
    vocabulary = vocabulary_of(words_of("\n".join(train_lines)), vocab_modulo)
    path = HOME.path(root, split)
    instances: Sequence[Tree] = _instances(path, lines, vocabulary)
    if None in (checksum_of(sha256, "train"), checksum_of(sha256, split)):
        if split != "train":
            _instances(HOME.path(root, "train"), train_lines, vocabulary)[:]
        instances = instances[:]
    return Corpus(
        name=NAME,
        split=split,
        instances=instances,
        sizes={"words": vocabulary.size, "classes": N_CLASSES},
        synthetic=False,
        sha256=digest,
        source="Stanford Sentiment Treebank (Socher et al., 2013)",
    )


def _read(root: Path, split: str, sha256: Checksums) -> tuple[list[str], str]:
    """Return the lines of a split and the checksum of its file."""
    path = HOME.path(root, split)
    content, digest = read_checked(path, checksum_of(sha256, split), NAME)
    text = decoded(content, str(path))
    # Not splitlines(), which also splits at characters that a word may contain.
    lines = text.rstrip("\n").split("\n")
    if lines == [""]:
        raise DataError(f"{path} is empty; it needs one tree a line, or run `bench-data fetch sst`")
    return lines, digest


def _instances(path: Path, lines: list[str], vocabulary: Vocabulary) -> LazyInstances[Tree]:
    """One tree a line; a word that the training split lacks has the row of unknown words."""

    def build(index: int) -> Tree:
        try:
            return parse_tree(lines[index], vocabulary.known, vocabulary.unknown, N_CLASSES)
        except DataError as error:
            raise DataError(
                f"{path}:{index + 1}: {error}; a line must be one tree of (label word) and "
                f"(label left right)"
            ) from None

    return LazyInstances(len(lines), build)
