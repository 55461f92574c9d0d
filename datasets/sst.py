r"""Stanford Sentiment Treebank: binary trees with one of five labels at every vertex.

Source: Socher et al., EMNLP 2013, https://nlp.stanford.edu/sentiment/. The splits have 8,544, 1,101
and 2,210 trees; the training split has 163,563 leaves, 155,019 internal vertices and 18,280 words
(163,599, 155,049 and 18,283 in ED-Batch's release, which adds 6 toy trees).

Each line is a tree as an S-expression: `(label word)` or `(label left right)`, where `/` and `*` in
a word are written as `\/` and `\*`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from datasets.parts.reading import (
    CorpusPart,
    LazyInstances,
    Vocabulary,
    build_vocabulary,
    make_part_reader,
)
from harness.contracts.corpus import Corpus
from harness.contracts.home import Checksums, Home, find_checksum
from harness.errors import DataError
from harness.values.instances import Tree

NAME = "sst"
N_CLASSES = 5
HOME = Home(
    is_archive=True,
    url="https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip",
    folder="sst",
    names={split: f"trees/{split}.txt" for split in ("train", "dev", "test")},
    n_bytes={"train": 2160058, "dev": 280825, "test": 559614},
)

# An opening parenthesis with its label, a word, or a closing parenthesis: together they match every
# character but separators. Only space and tab separate, as words of SST contain no-break spaces.
TOKEN = re.compile(r"\([^ \t()]*|[^ \t()]+|\)")
WORD = re.compile(r"[ \t]([^ \t\n()]+)\)")

Parts = list[int | str]  # content of a vertex: words, and indices of vertices


def load(split: str, root: Path | None, sha256: Checksums = None, vocab_modulo: int = 0) -> Corpus:
    """Load root/sst/<split>.txt; words are numbered by first appearance in the training split.

    Args:
        split: train, dev or test.
        root: data root.
        sha256: expected checksum per split. A file with that checksum is well formed, so that its
            trees are parsed on demand; without checksums, all trees are parsed here to check them.
        vocab_modulo: see datasets.parts.reading.TableRows.

    Raises:
        DataError: for a missing, empty or malformed file (with file:line), or a wrong checksum.
        ConfigError: for a negative vocab_modulo.
    """
    read = make_part_reader(NAME, HOME, root, sha256)
    text = read(split)
    train = text if split == "train" else read("train")
    vocabulary = build_vocabulary(list_words("\n".join(train.lines)), vocab_modulo)
    instances: Sequence[Tree] = _build_instances(text, vocabulary)
    if None in (find_checksum(sha256, "train"), find_checksum(sha256, split)):
        if train is not text:
            _build_instances(train, vocabulary)[:]
        instances = instances[:]
    return Corpus(
        name=NAME,
        split=split,
        instances=instances,
        sizes={"words": vocabulary.size, "classes": N_CLASSES},
        synthetic=False,
        sha256=text.sha256,
        source="Stanford Sentiment Treebank (Socher et al., 2013)",
    )


def _build_instances(text: CorpusPart, vocabulary: Vocabulary) -> LazyInstances[Tree]:
    """Return a tree for every line; words not in the training split have the unknown word's row."""

    def build(index: int) -> Tree:
        try:
            return parse_tree(text.lines[index], vocabulary.known, vocabulary.unknown, N_CLASSES)
        except DataError as error:
            reason = f"{error}: expected one tree of (label word) and (label left right) per line"
            raise text.build_error(index, reason) from None

    return LazyInstances(len(text.lines), build)


def unescape(word: str) -> str:
    r"""Return a word with `\/` and `\*` replaced by the characters that they stand for."""
    return word.replace("\\/", "/").replace("\\*", "*")


def list_words(text: str) -> list[str]:
    """Return the distinct words of well-formed trees in order of first appearance."""
    return list(dict.fromkeys(map(unescape, dict.fromkeys(WORD.findall(text)))))


def parse_tree(line: str, word_ids: Mapping[str, int], unknown: int, n_classes: int) -> Tree:
    """Parse one tree; vertices are numbered when their parenthesis closes, which is post-order.

    Args:
        word_ids: id of each known word.
        unknown: id of all other words.

    Raises:
        DataError: for a malformed tree, with the reason, to which the caller adds file and line.
    """
    label_of = {f"({label}": label for label in range(n_classes)}
    words: list[int] = []
    labels: list[int] = []
    children: list[tuple[int, int]] = []
    parts: Parts = []
    enclosing: list[tuple[int, Parts]] = []  # label of each open vertex, and the parts before it
    for token in TOKEN.findall(line):
        if token in label_of:
            enclosing.append((label_of[token], parts))
            parts = []
        elif token == ")":
            word, left_right = _parse_vertex(parts, is_open=bool(enclosing))
            words.append(-1 if word is None else word_ids.get(word, unknown))
            children.append(left_right)
            label, parts = enclosing.pop()
            parts.append(len(labels))
            labels.append(label)
        elif token[0] == "(":
            raise DataError(_explain_invalid_label(token[1:], n_classes))
        else:
            parts.append(token)
    if enclosing or len(parts) != 1 or isinstance(parts[0], str):
        raise DataError(_explain_invalid_tree(parts, n_open=len(enclosing)))
    left, right = np.array(children, dtype=np.int32).T
    return Tree(np.array(words), np.array(labels), left, right)


def _parse_vertex(parts: Parts, is_open: bool) -> tuple[str | None, tuple[int, int]]:
    """Return the word of a leaf, or None and the children of an internal vertex.

    Raises:
        DataError: for parts that are neither.
    """
    if is_open:
        if len(parts) == 1 and isinstance(word := parts[0], str):
            return unescape(word) if "\\" in word else word, (-1, -1)
        if len(parts) == 2:
            left, right = parts
            if isinstance(left, int) and isinstance(right, int):
                return None, (left, right)
    raise DataError(_explain_invalid_vertex(parts, is_open))


def _explain_invalid_label(text: str, n_classes: int) -> str:
    if not text:
        return "no label after '('"
    return f"label {text!r} is not an integer from 0 to {n_classes - 1}"


def _explain_invalid_vertex(parts: Parts, is_open: bool) -> str:
    if not is_open:
        return "unbalanced: ')' without '('"
    words = [part for part in parts if isinstance(part, str)]
    n_children = len(parts) - len(words)
    if words and n_children:
        return f"a vertex has both the word {words[0]!r} and children"
    if words:
        return f"a leaf has {len(words)} words, not one"
    if n_children:
        return f"a vertex has {n_children} {'child' if n_children == 1 else 'children'}, not two"
    return "a leaf has an empty word"


def _explain_invalid_tree(parts: Parts, n_open: int) -> str:
    if n_open:
        return f"unbalanced: {n_open} '(' not closed"
    if not parts:
        return "the line is empty"
    if isinstance(parts[0], str):
        return f"the text {parts[0]!r} is outside a tree"
    what = "a second tree" if isinstance(parts[1], int) else f"the text {parts[1]!r}"
    return f"{what} follows the tree"
