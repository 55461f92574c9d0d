"""Instances of any kind as JSON lines, for files of the user's own that have no other format.

Each line is an object with the arrays of an instance of `harness/values/`: ids of words, labels and
others, from 0 on. Ids stay as they are, so that a table has as many rows as its largest id needs.
docs/data.md lists the keys of each kind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dynbatch.datasets.parts.reading import Vocabulary, read_own_file
from dynbatch.datasets.parts.tree_builder import Parts, Side, TreeBuilder, build_trees
from dynbatch.harness.contracts.corpus import OWN_SPLIT, Corpus
from dynbatch.harness.contracts.home import Checksums, find_checksum
from dynbatch.harness.errors import DataError
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.instances import (
    Chain,
    Instance,
    Lattice,
    NaryTree,
    SentencePair,
    Tree,
)
from dynbatch.harness.values.parsed import ParsedSentence

NAME = "instances"
LARGEST_ID = 10**9 - 1
CHILDREN = "children"  # of a tree, in place of the fields left and right
KINDS: Mapping[str, type[Any]] = {
    "tree": Tree,
    "lattice": Lattice,
    "chain": Chain,
    "sentence_pair": SentencePair,
    "parsed_sentence": ParsedSentence,
}
# Array whose ids each size bounds; those of a lattice's tokens depend on the arc.
SIZES: Mapping[str, Mapping[str, str]] = {
    "tree": {"words": "words", "classes": "labels"},
    "lattice": {"classes": "tags"},
    "chain": {"words": "words", "classes": "labels", "characters": "characters"},
    "sentence_pair": {"source_words": "source", "target_words": "target"},
    "parsed_sentence": {"words": "words", "tags": "tags", "relations": "relations"},
}
Kind = Literal["tree", "lattice", "chain", "sentence_pair", "parsed_sentence"]


def load(
    split: str,
    root: Path | None,
    path: str,
    sha256: Checksums = None,
    kind: Kind = "tree",
    binarize: Side = "right",
) -> Corpus:
    """Load a file of the user's own.

    Args:
        binarize: of trees with other numbers of children than two, see dynbatch.datasets.sst.load.

    Raises:
        DataError: for a missing or malformed file (with file:line), or a wrong checksum.
    """
    text = read_own_file(Path(path), find_checksum(sha256, OWN_SPLIT))
    instances: list[Any] = []
    for index, line in enumerate(text.lines):
        try:
            instances.append(_parse_instance(line, kind, binarize))
        except DataError as error:
            raise text.build_error(index, str(error)) from None
    most: dict[str, int] = {}
    if kind == "tree":
        instances, most = build_trees(instances)
    return Corpus(
        name=NAME,
        split=split,
        instances=instances,
        sizes=_find_sizes(instances, kind) | most,
        sha256=text.sha256,
        source="",
        instance_kind=kind,
    )


def _parse_instance(line: str, kind: Kind, binarize: Side) -> Instance | TreeBuilder:
    """Parse one line; a tree is built when all of them are known."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise DataError(f"expected a JSON object, got {line[:40]!r}; put one instance on each line")
    if not _fits(given, kind):
        _, allowed = list_keys(kind)
        others = [other for other in KINDS if _fits(given, other)]
        advice = f"; set dataset.options.kind={others[0]}" if others else ""
        raise DataError(
            f"expected the keys {', '.join(allowed)} of a {kind}, got"
            f" {', '.join(given) or 'none'}{advice}"
        )
    children = given.pop(CHILDREN, None)
    for name, values in given.items():
        _check_ids(name, values, least=-1 if (kind, name) == ("tree", "words") else 0)
    if children is not None:
        return _read_tree(given["words"], given["labels"], children, binarize)
    built: Instance = KINDS[kind](**given)
    return built


def _fits(given: Mapping[str, Any], kind: str) -> bool:
    needed, allowed = list_keys(kind)
    return set(needed) <= set(given) <= set(allowed)


def list_keys(kind: str) -> tuple[list[str], list[str]]:
    """Return the keys that an instance needs, and all that it may have."""
    arrays = {item.name: item for item in fields(KINDS[kind]) if item.init}
    needed = [name for name, item in arrays.items() if item.default_factory is MISSING]
    if kind == "tree":
        needed = [name for name in needed if name not in ("left", "right")] + [CHILDREN]
    return needed, [*needed, *(name for name in arrays if name not in (*needed, "left", "right"))]


def _check_ids(name: str, values: object, least: int = 0) -> list[int]:
    if not isinstance(values, list):
        raise DataError(f"{name}: expected a list of whole numbers, got {str(values)[:40]}")
    for value in values:
        if type(value) is not int or not least <= value <= LARGEST_ID:
            raise DataError(
                f"{name}: expected whole numbers from 0 to {LARGEST_ID}, got {str(value)[:40]}"
            )
    return values


def _read_tree(
    words: Sequence[int], labels: Sequence[int], children: object, binarize: Side
) -> TreeBuilder:
    """Read the vertices of a tree, which is binary unless `binarize` leaves it as it is."""
    lists = children if isinstance(children, list) else [children]
    groups = [_check_ids(CHILDREN, vertex) for vertex in lists]
    if not len(words) == len(labels) == len(groups):
        raise DataError(
            f"words, labels and {CHILDREN} have lengths {len(words)}, {len(labels)} and"
            f" {len(groups)}; they must be equal"
        )
    flat = [child for group in groups for child in group]
    if sorted(flat) != list(range(len(words) - 1)):
        raise DataError("a tree is not connected: each vertex but the root needs one parent")
    starts = np.cumsum([0, *map(len, groups)])
    NaryTree(*map(as_int_array, (words, labels, starts, flat)))  # checks the rest
    rows = {str(word): word for word in words}
    builder = TreeBuilder(Vocabulary(rows, unknown=0, size=len(rows)))
    numbers: list[int] = []
    for word, label, group in zip(words, labels, groups, strict=True):
        parts: Parts = [numbers[child] for child in group] if group else [str(word)]
        numbers.append(builder.add_any(parts, label, binarize))
    return builder


def _find_sizes(instances: Sequence[Any], kind: Kind) -> dict[str, int]:
    """Return the sizes that the largest ids require."""
    arrays = {
        size: [getattr(instance, name) for instance in instances]
        for size, name in SIZES[kind].items()
    }
    if kind == "lattice":
        arrays["words"] = [lattice.tokens[~lattice.is_character] for lattice in instances]
        arrays["characters"] = [lattice.tokens[lattice.is_character] for lattice in instances]
    return {
        size: 1 + max(0, int(np.concatenate(parts).max(initial=0)))
        for size, parts in arrays.items()
    }
