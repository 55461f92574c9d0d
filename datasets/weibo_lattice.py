"""Lattices over Weibo sentences with arcs for characters and words, from ED-Batch's release.

Source: Chen et al., ICML 2023, https://github.com/gulang2019/ED-Batch, benchmark/data/lattice,
built there from the Weibo NER corpus (Peng and Dredze, EMNLP 2015), with another split: 1,147, 113
and 316 lattices. The training split has 50,618 states, 49,471 characters and 26,777 words.

A file has lines of nonnegative integers separated by spaces:

    1147                   number of lattices
    3                      number of states of the first
    0 3 3                  their tags; that of state 0 is 0
    0                      state 0: no incoming arcs
    1 0 232                state 1: one arc, from state 0, with id 232
    2 1 341 0 916          state 2: two arcs; the first is its character, others are words
                           a blank line ends the lattice, and shows that no number is truncated
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dynbatch.datasets.parts.reading import CorpusPart, LazyInstances, TableRows, make_part_reader
from dynbatch.harness.contracts.corpus import Corpus
from dynbatch.harness.contracts.home import Checksums, Home
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.checked import CountOrNone
from dynbatch.harness.values.instances import Lattice

NAME = "weibo_lattice"
N_CLASSES = 18  # tags; 0 is that of state 0
HOME = Home(
    url="https://raw.githubusercontent.com/gulang2019/ED-Batch/"
    "7d257ff12656c84fefb56406e36bafb04c7f479f/benchmark/data/lattice/{name}.txt",
    folder="lattice",
    n_bytes={"train": 733904, "dev": 85429, "test": 211583},
)
MAX_DIGITS = 9  # of a number: ids fit 32 bits
NUMBERS = re.compile(rf"[ \t]*(?:[0-9]{{1,{MAX_DIGITS}}}(?:[ \t]+|$))*")


def load(
    split: str,
    root: Path | None,
    sha256: Checksums = None,
    vocab_modulo: CountOrNone = 0,
    path: str | None = None,
) -> Corpus:
    """Load root/lattice/<split>.txt in the file's order.

    Args:
        vocab_modulo: 0 keeps the file's ids; ids above those of the training split share a row of
            unknown words or characters. Otherwise ids are taken modulo it, as in the release with
            256.
        path: file of the user's own with any number of tags, read in place of the corpus.

    Raises:
        DataError: for a missing or malformed file (with file:line), or a wrong checksum.
    """
    read = make_part_reader(NAME, HOME, root, sha256, path)
    text = read(split)
    n_classes = N_CLASSES if path is None else None
    lattices = read_lattices(text, n_classes)
    train = lattices if split == "train" else read_lattices(read("train"), n_classes)
    characters = TableRows(1 + _find_greatest(train, characters=True), vocab_modulo)
    words = TableRows(1 + _find_greatest(train, characters=False), vocab_modulo)

    def build(index: int) -> Lattice:
        lattice = lattices[index]
        rows = np.where(
            lattice.is_character,
            characters.find_rows(lattice.tokens),
            words.find_rows(lattice.tokens),
        )
        return Lattice(lattice.tags, lattice.arc_start, lattice.sources, as_int_array(rows))

    return Corpus(
        name=NAME,
        split=split,
        instances=LazyInstances(len(lattices), build),
        sizes={
            "words": words.size,
            "characters": characters.size,
            "classes": n_classes or 1 + max(int(lattice.tags.max()) for lattice in lattices),
        },
        sha256=text.sha256,
        source="lattices over Weibo NER sentences, of ED-Batch's release (Chen et al., 2023)",
        instance_kind="lattice",
    )


def _find_greatest(lattices: Sequence[Lattice], *, characters: bool) -> int:
    """Return the greatest id of characters or of words; -1 if there are none."""
    return max(int(x.tokens[x.is_character == characters].max(initial=-1)) for x in lattices)


def read_lattices(text: CorpusPart, n_classes: int | None = N_CLASSES) -> list[Lattice]:
    """Parse a file; tokens are the ids in the file.

    Args:
        n_classes: number of tags; None accepts any.

    Raises:
        DataError: for malformed content, with file, line and reason.
    """
    text = replace(text, lines=[*text.lines, *[""] * min(1, text.n_blank)])  # ends the last lattice
    counts = _read_numbers(text, 0)
    if len(counts) != 1:
        raise text.build_error(0, f"expected the number of lattices, got {len(counts)} numbers")
    (n_lattices,) = counts
    if n_lattices == 0:
        raise text.build_error(0, "expected at least 1 lattice, got 0")
    lattices, line = [], 1
    for index in range(n_lattices):
        name = f"lattice {index + 1} of {n_lattices}"
        states = _read_states(text, line, name)
        tags = _read_tags(text, line + 1, len(states), n_classes)
        lattices.append(_build_lattice(text, line + 2, tags, states))
        line += 3 + len(states)
    for rest in range(line, len(text.lines)):
        if _read_numbers(text, rest):
            more = f"text after the {n_lattices} lattices of line 1"
            raise text.build_error(rest, f"{more}; fix the number or remove the text")
    return lattices


def _read_numbers(text: CorpusPart, index: int) -> list[int]:
    line = text.lines[index]
    if not NUMBERS.fullmatch(line):
        for word in filter(None, re.split(r"[ \t]", line)):
            if not re.fullmatch("[0-9]+", word):
                raise text.build_error(
                    index, f"expected a whole number of at least 0, got {word[:40]!r}"
                )
            if len(word) > MAX_DIGITS:
                raise text.build_error(
                    index, f"{word} is too large: expected up to {MAX_DIGITS} digits"
                )
    return [int(word) for word in line.split()]


def _read_states(text: CorpusPart, head: int, name: str) -> list[list[int]]:
    n_lines = len(text.lines)
    if head >= n_lines:
        raise text.build_error(n_lines - 1, f"the file is truncated: it ends before {name}")
    counts = _read_numbers(text, head)
    if len(counts) != 1:
        raise text.build_error(
            head, f"{name}: expected its number of states, got {len(counts)} numbers"
        )
    (n_states,) = counts
    if n_states < 2:
        raise text.build_error(
            head, f"{name}: expected at least 2 states (one character), got {n_states}"
        )
    end = head + 2 + n_states
    block = [_read_numbers(text, line) for line in range(head + 1, min(end, n_lines))]
    if [] in block:
        after = block.index([])
        problem = f"ends after {max(0, after - 1)} of the {n_states} states"
        raise text.build_error(head + 1 + after, f"{name} {problem} of line {head + 1}")
    if end >= n_lines:
        raise text.build_error(n_lines - 1, f"the file is truncated: it ends within {name}")
    if _read_numbers(text, end):
        states = f"the {n_states} states of {name} (line {head + 1})"
        raise text.build_error(end, f"expected a blank line after {states}")
    return block[1:]


def _read_tags(text: CorpusPart, line: int, n_states: int, n_classes: int | None) -> list[int]:
    tags = _read_numbers(text, line)
    if len(tags) != n_states:
        raise text.build_error(line, f"expected {n_states} tags, one per state, got {len(tags)}")
    if n_classes is not None and (greatest := max(tags)) >= n_classes:
        raise text.build_error(
            line, f"tag {greatest} is out of range: expected 0 to {n_classes - 1}"
        )
    if tags[0]:
        raise text.build_error(line, f"invalid tag of state 0: expected 0, got {tags[0]}")
    return tags


def _build_lattice(
    text: CorpusPart, first: int, tags: list[int], states: list[list[int]]
) -> Lattice:
    """Build a lattice from the numbers of its states, which start on line `first`."""
    sources: list[int] = []
    tokens: list[int] = []
    arc_start = [0]
    for state, (n_arcs, *pairs) in enumerate(states):
        reason = _explain_invalid_state(state, n_arcs, pairs)
        if reason is not None:
            raise text.build_error(first + state, reason)
        sources += pairs[::2]
        tokens += pairs[1::2]
        arc_start.append(len(sources))
    return Lattice(*map(as_int_array, (tags, arc_start, sources, tokens)))


def _explain_invalid_state(state: int, n_arcs: int, pairs: list[int]) -> str | None:
    if len(pairs) != 2 * n_arcs:
        return f"state {state} with {n_arcs} arcs: expected {2 * n_arcs} numbers, got {len(pairs)}"
    if state == 0 and n_arcs:
        return f"state 0 has {n_arcs} incoming arcs: expected 0"
    if state and not n_arcs:
        return f"state {state} has no incoming arc: expected its character's, from {state - 1}"
    for index, source in enumerate(pairs[::2]):
        if source >= state:
            start = "itself" if source == state else f"state {source}"
            return f"an arc into state {state} comes from {start}: expected an earlier state"
        if (source == state - 1) != (index == 0):
            return (
                f"arc {index + 1} into state {state} comes from state {source}: expected only its"
                f" character, arc 1, from state {state - 1}"
            )
    return None
