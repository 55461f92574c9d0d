"""Lattices over Weibo sentences, with arcs for characters and for words, as ED-Batch released them.

Source: Chen et al., ICML 2023, https://github.com/gulang2019/ED-Batch, benchmark/data/lattice; made
there of the Weibo NER corpus (Peng and Dredze, EMNLP 2015), which it splits otherwise: 1147, 113
and 316 lattices. The training split has 50 618 states, 49 471 characters and 26 777 words.

A file has whole numbers between blanks, one line each:

    1147                   number of lattices
    3                      number of states of the first
    0 3 3                  their tags; that of state 0 is 0
    0                      state 0: no incoming arcs
    1 0 232                state 1: one arc, from state 0, with id 232
    2 1 341 0 916          state 2: two arcs; the first is its character, others are words
                           a blank line ends the lattice; without it a number may be cut
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from datasets.parts.reading import LazyInstances, Part, TableRows, part_reader
from harness.contracts.corpus import Corpus
from harness.contracts.home import Checksums, Home
from harness.values.arrays import IntArray, int_array
from harness.values.instances import Lattice

Indices = NDArray[np.int64]

NAME = "weibo_lattice"
N_CLASSES = 18  # tags; 0 is that of state 0
HOME = Home(
    url="https://raw.githubusercontent.com/gulang2019/ED-Batch/"
    "7d257ff12656c84fefb56406e36bafb04c7f479f/benchmark/data/lattice/{name}.txt",
    folder="lattice",
    n_bytes={"train": 733904, "dev": 85429, "test": 211583},
)
MAX_DIGITS = 9  # of a number: ids fit 32 bits


@dataclass(frozen=True, eq=False, slots=True)
class LatticeTable:
    """The lattices of one file, joined.

    first_state (n_lattices + 1,): where the states of each lattice begin.
    first_arc (n_states + 1,): where the arcs into each state begin.
    tags (n_states,); sources (n_arcs,): counted from the lattice's own state 0; tokens (n_arcs,).
    """

    first_state: Indices
    first_arc: Indices
    tags: IntArray
    sources: IntArray
    tokens: IntArray

    @property
    def n_lattices(self) -> int:
        return len(self.first_state) - 1

    @property
    def is_character(self) -> NDArray[np.bool_]:
        """Whether each arc is a character (n_arcs,): the first into its state."""
        starts = self.first_arc[:-1][np.diff(self.first_arc) > 0]
        first = np.zeros(len(self.sources), dtype=np.bool_)
        first[starts] = True
        return first

    def lattice(self, index: int, tokens: IntArray) -> Lattice:
        """Build one lattice; tokens (n_arcs,) replace those of the file."""
        states = slice(self.first_state[index], self.first_state[index + 1])
        starts = self.first_arc[states.start : states.stop + 1]
        arcs = slice(starts[0], starts[-1])
        return Lattice(self.tags[states], starts - starts[0], self.sources[arcs], tokens[arcs])


def load(split: str, root: Path | None, sha256: Checksums = None, vocab_modulo: int = 0) -> Corpus:
    """Load root/lattice/<split>.txt in the file's order.

    sha256: expected checksum per split; null accepts files of one's own in the same format.
    vocab_modulo: 0 keeps the file's ids, and ids above those of the training split share one row of
    unknown words or characters; 256 is the release's own: every id modulo 256.

    Raises DataError for a missing or malformed file (file:line), or a wrong checksum.
    """
    read = part_reader(NAME, HOME, root, sha256)
    text = read(split)
    table = read_lattices(text)
    train = table if split == "train" else read_lattices(read("train"))
    characters = TableRows(1 + _greatest(train, characters=True), vocab_modulo)
    words = TableRows(1 + _greatest(train, characters=False), vocab_modulo)
    tokens = int_array(
        np.where(table.is_character, characters.of(table.tokens), words.of(table.tokens))
    )

    def build(index: int) -> Lattice:
        return table.lattice(index, tokens)

    return Corpus(
        name=NAME,
        split=split,
        instances=LazyInstances(table.n_lattices, build),
        sizes={"words": words.size, "characters": characters.size, "classes": N_CLASSES},
        synthetic=False,
        sha256=text.sha256,
        source="lattices over Weibo NER sentences, of ED-Batch's release (Chen et al., 2023)",
        instance_kind="lattice",
    )


def _greatest(table: LatticeTable, *, characters: bool) -> int:
    """Return the greatest id of a character or a word, -1 where there is none."""
    ids = table.tokens[table.is_character == characters]
    return int(ids.max(initial=-1))


def read_lattices(text: Part) -> LatticeTable:
    """Parse a file, all of it at once, by a few passes of NumPy over its bytes.

    Raises DataError with file, line and reason where the content is not in the format.
    """
    file = _read_numbers(text)
    heads = _find_lattices(file)
    n_states = file.numbers[file.first[heads]]
    tags = _check_tags(file, heads, n_states)
    first_state = np.concatenate([[0], np.cumsum(n_states)])
    state = np.arange(first_state[-1]) - first_state[:-1].repeat(n_states)
    lines = (heads + 2).repeat(n_states) + state
    n_arcs = _check_counts(file, lines, state)
    first_arc = np.concatenate([[0], np.cumsum(n_arcs)])
    places = np.arange(first_arc[-1]) - first_arc[:-1].repeat(n_arcs)  # of an arc in its line
    at = (file.first[lines] + 1).repeat(n_arcs) + 2 * places
    sources = file.numbers[at]
    _check_arcs(file, lines.repeat(n_arcs), state.repeat(n_arcs), sources, places == 0)
    return LatticeTable(
        first_state=first_state,
        first_arc=first_arc,
        tags=int_array(tags),
        sources=int_array(sources),
        tokens=int_array(file.numbers[at + 1]),
    )


@dataclass(frozen=True, eq=False, slots=True)
class _Numbers:
    """All numbers of a file; those of line i (from 0) begin at first[i] and end at first[i + 1]."""

    text: Part
    numbers: Indices
    first: Indices

    @property
    def per_line(self) -> Indices:
        return np.diff(self.first)

    def refuse(self, line: int, reason: str) -> NoReturn:
        """Raise DataError for a line, counted from 0."""
        raise self.text.fault(line, reason)


def _read_numbers(text: Part) -> _Numbers:
    """Parse every number and remember its line."""
    content = "\n".join([*text.lines, ""]).encode()
    characters = np.frombuffer(content, dtype=np.uint8)
    is_digit = (characters >= ord("0")) & (characters <= ord("9"))
    is_blank = np.isin(characters, np.frombuffer(b" \t\n", dtype=np.uint8))
    _check_characters(text, content, is_digit | is_blank)
    edges = np.flatnonzero(np.diff(is_digit, prepend=False))
    starts, ends = edges[::2], edges[1::2]
    breaks = np.flatnonzero(characters == ord("\n"))
    first = np.concatenate([[0], np.searchsorted(starts, breaks)])
    too_long = np.flatnonzero(ends - starts > MAX_DIGITS)
    if len(too_long):
        line = int(np.searchsorted(breaks, starts[too_long[0]]))
        number = content[starts[too_long[0]] : ends[too_long[0]]].decode()
        raise text.fault(line, f"{number} is too large; ids have up to {MAX_DIGITS} digits")
    return _Numbers(text, np.array(content.split()).astype(np.int64), first)


def _check_characters(text: Part, content: bytes, allowed: NDArray[np.bool_]) -> None:
    """Refuse whatever is neither a digit nor blank, with the word that it stands in."""
    if allowed.all():
        return
    wrong = int(np.argmin(allowed))
    begin = max(content.rfind(blank, 0, wrong) for blank in (b" ", b"\t", b"\n")) + 1
    word = content[begin:].split(maxsplit=1)[0][:40].decode("utf-8", errors="replace")
    line = content.count(b"\n", 0, wrong)
    raise text.fault(line, f"{word!r} is not a whole number of 0 or more")


def _find_lattices(file: _Numbers) -> Indices:
    """Return the line with which each lattice begins; all lines it announces are there."""
    per_line = file.per_line.tolist()
    if per_line[0] != 1:
        file.refuse(0, f"the line has {per_line[0]} numbers; it must be the number of lattices")
    n_lattices = int(file.numbers[0])
    if n_lattices == 0:
        file.refuse(0, "the file announces no lattices; it needs at least 1")
    heads = []
    line = 1
    for index in range(n_lattices):
        heads.append(line)
        line = _end_of_lattice(file, per_line, line, f"lattice {index + 1} of {n_lattices}")
    rest = np.flatnonzero(file.per_line[line:])
    if len(rest):
        more = f"the first line announces {n_lattices} lattices, but more text follows them"
        file.refuse(line + int(rest[0]), more)
    return np.array(heads)


def _end_of_lattice(file: _Numbers, per_line: list[int], head: int, name: str) -> int:
    """Return the line behind the blank one that ends the lattice beginning at line `head`."""
    n_lines = len(per_line)
    if head >= n_lines:
        file.refuse(n_lines - 1, f"the file ends before {name}; it is truncated")
    if per_line[head] != 1:
        file.refuse(head, f"{name} begins with {per_line[head]} numbers; give its number of states")
    n_states = int(file.numbers[file.first[head]])
    if n_states < 2:
        file.refuse(head, f"{name} has {n_states} states; it needs at least 2, for one character")
    end = head + 2 + n_states
    if 0 in per_line[head + 1 : min(end, n_lines)]:
        blank = per_line.index(0, head + 1)
        found = f"ends after {max(0, blank - head - 2)} of the {n_states} states it announces"
        file.refuse(blank, f"{name} {found} on line {head + 1}")
    if end >= n_lines:
        file.refuse(n_lines - 1, f"the file ends within {name}; it is truncated")
    if per_line[end] != 0:
        states = f"the {n_states} states that it announces on line {head + 1}"
        file.refuse(end, f"no blank line ends {name} after {states}")
    return end + 1


def _check_tags(file: _Numbers, heads: Indices, n_states: Indices) -> Indices:
    """Return the tags of all states, joined."""
    lines = heads + 1
    found = file.per_line[lines]
    wrong = np.flatnonzero(found != n_states)
    if len(wrong):
        index = wrong[0]
        reason = (
            f"{found[index]} tags for the {n_states[index]} states of the lattice; give one each"
        )
        file.refuse(lines[index], reason)
    starts = file.first[lines]
    before = np.concatenate([[0], np.cumsum(n_states)[:-1]])
    at = (starts - before).repeat(n_states) + np.arange(n_states.sum())
    tags: Indices = file.numbers[at]
    wrong = np.flatnonzero(tags >= N_CLASSES)
    if len(wrong):
        line = int(np.searchsorted(file.first, at[wrong[0]], side="right")) - 1
        file.refuse(line, f"tag {tags[wrong[0]]} is out of range; tags are 0 to {N_CLASSES - 1}")
    wrong = np.flatnonzero(file.numbers[starts])
    if len(wrong):
        tag = file.numbers[starts[wrong[0]]]
        file.refuse(lines[wrong[0]], f"the tag of state 0 is {tag}; it must be 0")
    return tags


def _check_counts(file: _Numbers, lines: Indices, state: Indices) -> Indices:
    """Return how many arcs each state has; one into every state but state 0, which has none."""
    n_arcs: Indices = file.numbers[file.first[lines]]
    n_numbers = file.per_line[lines] - 1
    wrong = np.flatnonzero(n_numbers != 2 * n_arcs)
    if len(wrong):
        index = wrong[0]
        found = f"state {state[index]} announces {n_arcs[index]} arcs, which are two numbers each"
        file.refuse(lines[index], f"{found}, but {n_numbers[index]} numbers follow")
    wrong = np.flatnonzero((n_arcs == 0) != (state == 0))
    if len(wrong):
        index, at = wrong[0], state[wrong[0]]
        if at == 0:
            reason = f"state 0 has {n_arcs[index]} incoming arcs; nothing can come before it"
        else:
            reason = f"state {at} has no incoming arc; it needs its character's, from {at - 1}"
        file.refuse(lines[index], reason)
    return n_arcs


def _check_arcs(
    file: _Numbers, lines: Indices, targets: Indices, sources: Indices, is_first: NDArray[np.bool_]
) -> None:
    """Refuse arcs not from before, and states whose character is not the first arc alone."""
    wrong = np.flatnonzero(sources >= targets)
    if len(wrong):
        arc = wrong[0]
        where = "itself" if sources[arc] == targets[arc] else f"state {sources[arc]}, further on"
        reason = f"an arc into state {targets[arc]} comes from {where}; it must come from before"
        file.refuse(lines[arc], reason)
    wrong = np.flatnonzero((sources == targets - 1) != is_first)
    if len(wrong):
        arc = wrong[0]
        first = (
            f"exactly the first of its arcs must be its character, from state {targets[arc] - 1}"
        )
        found = "comes first" if is_first[arc] else "is one more"
        file.refuse(
            lines[arc],
            f"state {targets[arc]}: the arc from state {sources[arc]} {found}, but {first}",
        )
