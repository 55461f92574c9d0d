"""Instances of every kind as JSON lines in a file of the user's own."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dynbatch.datasets.instances import KINDS
from dynbatch.harness.contracts.corpus import Corpus, load_corpus
from dynbatch.harness.errors import ConfigError, DataError
from dynbatch.harness.planning.config import Composer
from tests.support.corpora import EXCERPTS, load, write_corpus
from tests.support.refusals import expect_refusal

# A corpus with instances of each kind, and a model that takes them.
EXAMPLES = {
    "tree": ("sst", "tree_lstm"),
    "lattice": ("weibo_lattice", "lattice_lstm"),
    "chain": ("wikiner", "bilstm_char"),
    "sentence_pair": ("iwslt15", "seq2seq"),
    "parsed_sentence": ("ud_ewt", "parser"),
}


def format_instance(instance: Any) -> str:
    """Write an instance as a user writes it."""
    arrays = {item.name: getattr(instance, item.name) for item in fields(instance) if item.init}
    values = {name: array.tolist() for name, array in arrays.items()}
    if "left" in values:
        pairs = zip(values.pop("left"), values.pop("right"), strict=True)
        values["children"] = [[] if left < 0 else [left, right] for left, right in pairs]
    return json.dumps(values)


def read_lines(folder: Path, *lines: str, **options: str) -> Corpus:
    file = folder / "mine.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return load_corpus("dynbatch.datasets.instances", "train", None, path=str(file), **options)


def test_there_is_an_example_of_every_kind() -> None:
    assert set(EXAMPLES) == set(KINDS)
    assert {name for name, _ in EXAMPLES.values()} < set(EXCERPTS)


@pytest.mark.parametrize("kind", sorted(EXAMPLES))
def test_instances_of_every_kind_are_read_as_they_are(kind: str, tmp_path: Path) -> None:
    name, model = EXAMPLES[kind]
    write_corpus(name, tmp_path)
    expected = load(name, tmp_path).instances[:]
    corpus = read_lines(tmp_path, *map(format_instance, expected), kind=kind)
    assert (corpus.instance_kind, corpus.source) == (kind, "your data")
    for one, other in zip(corpus.instances, expected, strict=True):
        for item in fields(other):
            assert np.array_equal(getattr(one, item.name), getattr(other, item.name))
    chosen = {"dataset.path": str(tmp_path / "mine.jsonl"), "dataset.options.kind": kind}
    spec = Composer().resolve_trial({"dataset": "instances", "model": model} | chosen)
    assert spec.dataset_options["kind"] == kind
    wrong = "tree_lstm" if kind != "tree" else "parser"
    with pytest.raises(ConfigError, match=f"but dataset=instances has {kind}"):
        Composer().resolve_trial({"dataset": "instances", "model": wrong} | chosen)


def test_sizes_are_those_of_the_largest_ids(tmp_path: Path) -> None:
    tree = '{"words": [4, 7, -1], "labels": [0, 1, 2], "children": [[], [], [0, 1]]}'
    assert read_lines(tmp_path, tree).sizes == {"words": 8, "classes": 3}
    pair = '{"source": [1, 9], "target": [0, 3]}'
    sizes = read_lines(tmp_path, pair, kind="sentence_pair").sizes
    assert sizes == {"source_words": 10, "target_words": 4}


NARY = (
    '{"words": [1, 2, 3, -1, -1], "labels": [0, 1, 2, 3, 4],'
    ' "children": [[], [], [], [0, 1, 2], [3]]}'
)


@pytest.mark.parametrize(
    ("binarize", "left", "right"),
    [
        ("right", [-1, -1, -1, 1, 0], [-1, -1, -1, 2, 3]),
        ("left", [-1, -1, -1, 0, 3], [-1, -1, -1, 1, 2]),
    ],
)
def test_trees_of_any_arity_become_binary(
    binarize: str, left: list[int], right: list[int], tmp_path: Path
) -> None:
    """Three children get a vertex of their parent's label; a vertex with one child is merged."""
    (tree,) = read_lines(tmp_path, NARY, binarize=binarize).instances
    assert (tree.left.tolist(), tree.right.tolist()) == (left, right)
    assert tree.labels.tolist() == [0, 1, 2, 3, 4]


def test_trees_of_any_arity_may_stay_as_they_are(tmp_path: Path) -> None:
    corpus = read_lines(tmp_path, NARY, LEAF, binarize="none")
    assert corpus.sizes == {"words": 4, "classes": 5, "children": 3}
    assert corpus.instances[0].children.tolist() == [0, 1, 2, 3]
    assert corpus.instances[1].n_vertices == 1


KEYS = "expected the keys words, labels, children of a tree, got "
LEAF = '{"words": [0], "labels": [0], "children": [[]]}'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("(2 a)", "expected a JSON object, got '(2 a)'"),
        ("", "expected a JSON object"),
        ("[" * 100_000, "expected a JSON object"),
        ("{}", f"{KEYS}none"),
        ('{"words": [0], "labels": [0]}', f"{KEYS}words, labels; set dataset.options.kind=chain"),
        ('{"target": [0], "source": [0]}', f"{KEYS}target, source; set dataset.options.kind=sent"),
        (LEAF.replace("[0]", "[0.5]"), "words: expected whole numbers from 0 to 999999999,"),
        (LEAF.replace("[0]", "[true]"), "words: expected whole numbers"),
        (LEAF.replace("[0]", "[9999999999]"), "words: expected whole numbers"),
        (LEAF.replace("[0]", "0"), "words: expected a list of whole numbers, got 0"),
        (LEAF.replace("[[]]", "[[0]]"), "a tree is not connected"),
        (LEAF.replace('"labels": [0]', '"labels": [-1]'), "labels: expected whole numbers from 0"),
        (LEAF.replace("[[]]", "5"), "children: expected a list of whole numbers, got 5"),
        (NARY.replace("-1", "4", 1), "a leaf has no word, or an internal vertex has one"),
        (LEAF.replace("[[]]", "[]"), "words, labels and children have lengths 1, 1 and 0"),
    ],
)
def test_a_wrong_line_is_named(line: str, reason: str, tmp_path: Path) -> None:
    with expect_refusal(f"mine.jsonl:2: {reason}", kind=DataError):
        read_lines(tmp_path, LEAF, line, LEAF)
