r"""Stanford Sentiment Treebank: binary trees with one of five labels at every vertex.

Source: Socher et al., EMNLP 2013, https://nlp.stanford.edu/sentiment/. The splits have 8,544, 1,101
and 2,210 trees; the training split has 163,563 leaves, 155,019 internal vertices and 18,280 words
(163,599, 155,049 and 18,283 in ED-Batch's release, which adds 6 toy trees).

Each line is a tree as an S-expression: `(label word)` or `(label left right)`, where `/` and `*` in
a word are written as `\/` and `\*`.

In a file of the user's own, a tree may have several lines, labels are any strings, and vertices
have any number of children. For models of any number of children, trees stay as they are; only a
vertex without a label is merged with its child. For other models, they become binary ones: a vertex
with one child is merged with it and keeps its own label, unless it has none, and a vertex with more
than two children gets vertices of its label in between.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dynbatch.datasets.parts.reading import (
    CorpusPart,
    LazyInstances,
    Vocabulary,
    build_vocabulary,
    make_part_reader,
)
from dynbatch.datasets.parts.tree_builder import NO_LABEL, Parts, Side, TreeBuilder, build_trees
from dynbatch.harness.contracts.corpus import Corpus
from dynbatch.harness.contracts.home import Checksums, Home, find_checksum
from dynbatch.harness.errors import DataError
from dynbatch.harness.values.checked import CountOrNone
from dynbatch.harness.values.instances import Tree

NAME = "sst"
CLASSES = {str(label): label for label in range(5)}
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
LABEL = re.compile(r"\(([^ \t()]*)")
WORD = re.compile(r"[ \t]([^ \t\n()]+)[ \t]*\)")


def load(
    split: str,
    root: Path | None,
    sha256: Checksums = None,
    vocab_modulo: CountOrNone = 0,
    path: str | None = None,
    binarize: Side = "right",
) -> Corpus:
    """Load root/sst/<split>.txt; words are numbered by first appearance in the training split.

    Args:
        sha256: expected checksum per split. A file with that checksum is well formed, so that its
            trees are parsed on demand; without checksums, all trees are parsed here to check them.
        binarize: in such a file, the side of the vertices between one with more than two children
            and its children: "right" and "auto", which planning replaces by the model's choice,
            make (a b c) to (a (b c)); "none" leaves trees as they are.

    Raises:
        DataError: for a missing, empty or malformed file (with file:line), or a wrong checksum.
    """
    read = make_part_reader(NAME, HOME, root, sha256, path)
    text = read(split)
    if path is not None:
        return _load_own(text, split, vocab_modulo, binarize)
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
        sizes={"words": vocabulary.size, "classes": len(CLASSES)},
        sha256=text.sha256,
        source="Stanford Sentiment Treebank (Socher et al., 2013)",
    )


def _build_instances(text: CorpusPart, vocabulary: Vocabulary) -> LazyInstances[Tree]:
    """Return a tree for every line; words not in the training split have the unknown word's row."""

    def build(index: int) -> Tree:
        try:
            return parse_tree(text.lines[index], vocabulary, CLASSES)
        except DataError as error:
            reason = f"{error}: expected one tree of (label word) and (label left right) per line"
            raise text.build_error(index, reason) from None

    return LazyInstances(len(text.lines), build)


def _load_own(text: CorpusPart, split: str, vocab_modulo: int, binarize: Side) -> Corpus:
    text = replace(text, lines=_join_lines(text.lines))
    whole = "\n".join(text.lines)
    vocabulary = build_vocabulary(list_words(whole), vocab_modulo)
    names = sorted({*LABEL.findall(whole)} - {""}, key=_order_label)
    classes = {name: label for label, name in enumerate(names)}
    parsed = []
    for index, line in enumerate(text.lines):
        if line.strip(" \t"):
            try:
                parsed.append(_parse_vertices(line, vocabulary, classes, binarize))
            except DataError as error:
                reason = f"{error}: expected trees of (label word) and (label child ...)"
                raise text.build_error(index, reason) from None
    # Without the labels of merged vertices.
    used = np.unique(np.concatenate([tree.labels for tree in parsed]))
    for tree in parsed:
        tree.labels = np.searchsorted(used, tree.labels).tolist()
    instances, most_children = build_trees(parsed)
    return Corpus(
        name=NAME,
        split=split,
        instances=instances,
        sizes={"words": vocabulary.size, "classes": len(used), **most_children},
        sha256=text.sha256,
        source="",
        label_names=[names[label] for label in used.tolist()],
    )


def _join_lines(lines: Sequence[str]) -> list[str]:
    """Return each tree on its first line, and its other lines empty."""
    parts: list[list[str]] = []
    first = depth = 0
    for index, line in enumerate(lines):
        if depth <= 0:
            first, depth = index, 0
        parts.append([])
        parts[first].append(line)
        depth += line.count("(") - line.count(")")
    return [" ".join(part) for part in parts]


def _order_label(name: str) -> tuple[int, str, str]:
    """Return the sort key of a label: whole numbers by value, before other labels by spelling."""
    if name.isascii() and name.isdecimal():
        digits = name.lstrip("0")
        return len(digits), digits, name
    return sys.maxsize, name, name


def unescape(word: str) -> str:
    r"""Return a word with `\/` and `\*` replaced by `/` and `*`."""
    return word.replace("\\/", "/").replace("\\*", "*")


def list_words(text: str) -> list[str]:
    """Return the distinct words of well-formed trees in order of first appearance."""
    return list(dict.fromkeys(map(unescape, dict.fromkeys(WORD.findall(text)))))


def parse_tree(line: str, vocabulary: Vocabulary, classes: Mapping[str, int]) -> Tree:
    """Parse one binary tree.

    Raises:
        DataError: for a malformed tree, with the reason, to which the caller adds file and line.
    """
    return _parse_vertices(line, vocabulary, classes).build_binary()


def _parse_vertices(
    line: str,
    vocabulary: Vocabulary,
    classes: Mapping[str, int],
    binarize: Side | None = None,
) -> TreeBuilder:
    """Parse one tree; vertices are numbered when their parenthesis closes, which is post-order.

    Args:
        binarize: see `load`; None accepts only binary trees.
    """
    no_label = None if binarize is None else NO_LABEL
    vertices = TreeBuilder(vocabulary)
    parts: Parts = []
    enclosing: list[tuple[int, Parts]] = []  # label of each open vertex, and the parts before it
    for token in TOKEN.findall(line):
        if token[0] == "(":
            opened = classes.get(token[1:]) if token != "(" else no_label
            if opened is None:
                raise DataError(_explain_invalid_label(token[1:], len(classes)))
            enclosing.append((opened, parts))
            parts = []
        elif token == ")":
            if not enclosing:
                raise DataError("unbalanced: ')' without '('")
            label, outer = enclosing.pop()
            vertex = (
                vertices.add(parts, label)
                if binarize is None
                else vertices.add_any(parts, label, binarize)
            )
            outer.append(vertex)
            parts = outer
        else:
            parts.append(unescape(token) if "\\" in token else token)
    if enclosing or len(parts) != 1 or isinstance(parts[0], str):
        raise DataError(_explain_invalid_tree(parts, n_open=len(enclosing)))
    return vertices


def _explain_invalid_label(text: str, n_classes: int) -> str:
    if not text:
        return "no label after '('"
    return f"label {text!r} is not an integer from 0 to {n_classes - 1}"


def _explain_invalid_tree(parts: Parts, n_open: int) -> str:
    if n_open:
        return f"unbalanced: {n_open} '(' not closed"
    if not parts:
        return "the line is empty"
    if isinstance(parts[0], str):
        return f"the text {parts[0]!r} is outside a tree"
    what = "a second tree" if isinstance(parts[1], int) else f"the text {parts[1]!r}"
    return f"{what} follows the tree"
