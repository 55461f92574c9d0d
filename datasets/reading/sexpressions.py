r"""Reader of binary trees as S-expressions, one a line: `(label word)` or `(label left right)`.

The format of the Stanford Sentiment Treebank, which writes `/` and `*` of a word as `\/` and `\*`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from harness.errors import DataError
from harness.values.instances import Tree

# A parenthesis with what follows it, a word, or a closing parenthesis: no character is in none.
# Only blank and tab separate: words of SST contain no-break spaces.
TOKEN = re.compile(r"\([^ \t()]*|[^ \t()]+|\)")
WORD = re.compile(r"[ \t]([^ \t\n()]+)\)")

Parts = list[int | str]  # what stands between two parentheses: words, and numbers of vertices


def unescape(word: str) -> str:
    r"""Return the word itself for one written with `\/` or `\*`."""
    return word.replace("\\/", "/").replace("\\*", "*")


def words_of(text: str) -> list[str]:
    """Return the distinct words of well-formed trees, by first appearance."""
    return list(dict.fromkeys(map(unescape, dict.fromkeys(WORD.findall(text)))))


def parse_tree(line: str, word_ids: Mapping[str, int], unknown: int, n_classes: int) -> Tree:
    """Parse one tree; vertices get their numbers as they close, which is post-order.

    word_ids: id of each word; all others become `unknown`.

    Raises DataError with the reason (without file and line, which the caller knows).
    """
    label_of = {f"({label}": label for label in range(n_classes)}
    words: list[int] = []
    labels: list[int] = []
    children: list[tuple[int, int]] = []
    parts: Parts = []
    enclosing: list[tuple[int, Parts]] = []  # of each open vertex: its label, the parts before it
    for token in TOKEN.findall(line):
        if token in label_of:
            enclosing.append((label_of[token], parts))
            parts = []
        elif token == ")":
            word, left_right = _vertex(parts, is_open=bool(enclosing))
            words.append(-1 if word is None else word_ids.get(word, unknown))
            children.append(left_right)
            label, parts = enclosing.pop()
            parts.append(len(labels))
            labels.append(label)
        elif token[0] == "(":
            raise DataError(_why_not_a_label(token[1:], n_classes))
        else:
            parts.append(token)
    if enclosing or len(parts) != 1 or isinstance(parts[0], str):
        raise DataError(_why_not_one_tree(parts, n_open=len(enclosing)))
    left, right = np.array(children, dtype=np.int32).T
    return Tree(np.array(words), np.array(labels), left, right)


def _vertex(parts: Parts, is_open: bool) -> tuple[str | None, tuple[int, int]]:
    """Return the word of a leaf, or None and the children of an internal vertex."""
    if is_open:
        if len(parts) == 1 and isinstance(word := parts[0], str):
            return unescape(word) if "\\" in word else word, (-1, -1)
        if len(parts) == 2:
            left, right = parts
            if isinstance(left, int) and isinstance(right, int):
                return None, (left, right)
    raise DataError(_why_not_a_vertex(parts, is_open))


def _why_not_a_label(text: str, n_classes: int) -> str:
    if not text:
        return "a '(' is not followed by a label"
    return f"label {text!r} is not an integer from 0 to {n_classes - 1}"


def _why_not_a_vertex(parts: Parts, is_open: bool) -> str:
    if not is_open:
        return "unbalanced: a ')' closes nothing"
    words = [part for part in parts if isinstance(part, str)]
    n_children = len(parts) - len(words)
    if words and n_children:
        return f"a vertex has both the word {words[0]!r} and children"
    if words:
        return f"a leaf has {len(words)} words, it must have one"
    if n_children:
        return f"a vertex has {n_children} {'child' if n_children == 1 else 'children'}, not two"
    return "a leaf has an empty word"


def _why_not_one_tree(parts: Parts, n_open: int) -> str:
    if n_open:
        return f"unbalanced: {n_open} '(' not closed"
    if not parts:
        return "the line is empty"
    if isinstance(parts[0], str):
        return f"the text {parts[0]!r} is outside a tree"
    what = "a second tree" if isinstance(parts[1], int) else f"the text {parts[1]!r}"
    return f"{what} follows the tree"
