"""Lattices from files and generated ones: their content."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynbatch.datasets.parts.reading import LazyInstances, split_text
from dynbatch.datasets.weibo_lattice import read_lattices
from dynbatch.harness.commands.data import describe_corpus
from dynbatch.harness.contracts.corpus import Corpus, draw_mini_batches
from dynbatch.harness.contracts.model import ModelSizes
from dynbatch.harness.contracts.policy import load_policy
from dynbatch.harness.granularity.released import build_released_graph
from dynbatch.harness.models.lattice_lstm import LatticeLSTM
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.values.instances import Lattice
from tests.support.corpora import change_lattices, load, load_shipped, write_corpus


def test_a_file_is_read_as_it_is_written(tmp_path: Path) -> None:
    write_corpus("weibo_lattice", tmp_path)
    corpus = load("weibo_lattice", tmp_path)
    assert corpus.instance_kind == "lattice"
    # Ids of words are 0 to 32, of characters 0 to 8; unknown ones have a row each.
    assert corpus.sizes == {"words": 34, "characters": 10, "classes": 18}
    first, second = corpus.instances
    assert first.tags.tolist() == [0, 3, 1, 2]
    assert first.arc_start.tolist() == [0, 0, 1, 3, 6]
    assert first.sources.tolist() == [0, 1, 0, 2, 0, 1]
    assert first.tokens.tolist() == [5, 6, 30, 7, 31, 32]
    assert (second.tags.tolist(), second.tokens.tolist()) == ([0, 3], [8])
    assert isinstance(corpus.instances, LazyInstances)


@st.composite
def lattices(draw: st.DrawFn) -> list[list[list[tuple[int, int]]]]:
    """Draw the incoming arcs of each state of each lattice, as pairs of source and id."""
    made = []
    for n in draw(st.lists(st.integers(2, 8), min_size=1, max_size=5)):
        arcs: list[list[tuple[int, int]]] = [[]]
        for state in range(1, n):
            words = sorted(draw(st.sets(st.integers(0, state - 2)))) if state > 1 else []
            arcs.append([(s, draw(st.integers(0, 99))) for s in (state - 1, *words)])
        made.append(arcs)
    return made


@given(lattices(), st.sampled_from(["\n", "\r\n"]))
def test_written_lattices_are_read_back(made: list[list[list[tuple[int, int]]]], end: str) -> None:
    lines = [str(len(made))]
    for arcs in made:
        lines += [str(len(arcs)), " ".join("0" * len(arcs))]
        lines += [" ".join(map(str, (len(into), *sum(into, ())))) for into in arcs]
        lines.append("")
    content = end.join([*lines, ""]).encode()
    found = read_lattices(split_text(Path("a file"), content, ""))
    for lattice, arcs in zip(found, made, strict=True):
        pairs = zip(lattice.sources.tolist(), lattice.tokens.tolist(), strict=True)
        assert list(pairs) == [pair for into in arcs for pair in into]
        assert np.diff(lattice.arc_start).tolist() == [len(into) for into in arcs]


def test_ids_that_the_training_split_lacks_are_unknown(tmp_path: Path) -> None:
    write_corpus("weibo_lattice", tmp_path, dev=change_lattices(6, "2 1 1234 0 1234"))
    train, dev = load("weibo_lattice", tmp_path), load("weibo_lattice", tmp_path, "dev")
    assert dev.sizes == train.sizes == {"words": 34, "characters": 10, "classes": 18}
    assert dev.instances[0].tokens.tolist() == [5, 9, 33, 7, 31, 32]
    shared = load("weibo_lattice", tmp_path, "dev", vocab_modulo=10)  # of the ids in the file
    assert shared.instances[0].tokens.tolist() == [5, 4, 4, 7, 1, 2]


@pytest.mark.parametrize(
    ("split", "reported"),
    [
        # Counted in the released file, independently of this code.
        (
            "train",
            {
                "instances": "1147 (lattice)",
                "states": "50618, mean 44.13, min 3, max 211",
                "arcs": "49471 characters and 26777 words",
                "arcs into a state": "0: 1147, 1: 25680, 2: 21110, 3: 2388, 4: 281, 5: 12",
                "word lengths": "2: 23045, 3: 3011, 4: 558, 5: 122, 6: 30, 7: 5, 8: 6",
            },
        ),
        ("dev", {"instances": "113 (lattice)"}),
        ("test", {"instances": "316 (lattice)"}),
    ],
)
def test_statistics_of_real_files(data_root: Path, split: str, reported: dict[str, str]) -> None:
    corpus = load_shipped("weibo_lattice", data_root, split)
    found = dict(describe_corpus(corpus))
    assert {name: found[name] for name in reported} == reported
    assert (corpus.get_size("words"), corpus.get_size("characters")) == (10_131, 2_213)
    for lattice in corpus.instances:
        assert lattice.tokens[lattice.is_character].max() < corpus.get_size("characters")
        assert lattice.tokens.max() < corpus.get_size("words")
        for start, end in pairwise(lattice.arc_start[1:]):  # words are longest first
            assert np.all(np.diff(lattice.sources[start + 1 : end]) > 0)


# --- generated lattices ---


def shares(counts: Sequence[int] | np.ndarray) -> list[float]:
    return (np.array(counts) / sum(counts)).tolist()


def counts_of(some: Sequence[Lattice]) -> tuple[list[int], list[int]]:
    """Count states by their number of incoming arcs, and words by their length."""
    into = [np.diff(lattice.arc_start) for lattice in some]
    lengths = [
        (np.arange(lattice.n_states).repeat(n) - lattice.sources)[~lattice.is_character]
        for lattice, n in zip(some, into, strict=True)
    ]
    counted = [np.bincount(np.concatenate(found)).tolist() for found in (into, lengths)]
    return counted[0], counted[1]


def tag_shares(some: Sequence[Lattice]) -> list[float]:
    return shares(np.bincount(np.concatenate([lattice.tags for lattice in some]), minlength=18))


def test_statistics_are_close_to_those_of_the_released_lattices() -> None:
    # Compared with the training split of ED-Batch's release: lengths within 3%, words per character
    # within 2%, fractions of states and words within half a percentage point.
    corpus = load("lattice_synthetic", None)
    assert corpus.synthetic
    assert (corpus.instance_kind, corpus.get_size("classes")) == ("lattice", 18)
    assert (corpus.get_size("words"), corpus.get_size("characters")) == (10_131, 2_213)
    drawn = corpus.instances
    states = np.array([lattice.n_states for lattice in drawn])
    assert states.mean() == pytest.approx(44.1, rel=0.03)
    assert (states.min(), 150 < states.max() <= 211) == (3, True)
    into, lengths = counts_of(drawn)
    assert sum(lengths) / (states - 1).sum() == pytest.approx(26_777 / 49_471, rel=0.02)
    assert shares(into[1:5]) == pytest.approx(shares([25_680, 21_110, 2388, 281]), abs=0.006)
    expected = shares([23_045, 3011, 558, 122, 30])
    assert shares(lengths[2:7]) == pytest.approx(expected, abs=0.005)
    assert len(lengths) == 8 + 1
    assert tag_shares(drawn)[:4] == pytest.approx((0.023, 0.010, 0.010, 0.836), abs=0.003)


def test_lattices_match_the_real_ones_in_distribution(data_root: Path) -> None:
    drawn = load("lattice_synthetic", None).instances
    found = load_shipped("weibo_lattice", data_root).instances
    tenths = np.linspace(0.1, 0.9, 9)
    one, other = (np.quantile([x.n_states for x in some], tenths) for some in (found, drawn))
    np.testing.assert_allclose(other, one, atol=2.5)
    assert tag_shares(drawn) == pytest.approx(tag_shares(found), abs=0.003)
    for is_character in (True, False):
        expected_shares = frequent_shares(found, is_character)
        np.testing.assert_allclose(frequent_shares(drawn, is_character), expected_shares, atol=0.03)
    np.testing.assert_allclose(overlaps(drawn), overlaps(found), atol=0.02)


def frequent_shares(some: Sequence[Lattice], is_character: bool) -> np.ndarray:
    """Return the fractions of arcs of the 1, 10, 100 and 1000 most frequent characters or words."""
    tokens = np.concatenate([x.tokens[x.is_character == is_character] for x in some])
    running = np.cumsum(np.sort(np.bincount(tokens))[::-1]) / len(tokens)
    return running[np.array([1, 10, 100, 1000]) - 1]


def overlaps(some: Sequence[Lattice]) -> np.ndarray:
    """Return how often a word ends at a character, by the ends at the two characters before it."""
    counts = np.zeros((4, 2))
    for lattice in some:
        has_word = (np.diff(lattice.arc_start) > 1).astype(int)
        np.add.at(counts, (2 * has_word[2:-1] + has_word[1:-2], has_word[3:]), 1)
    return counts[:, 1] / counts.sum(axis=1)


def batches_over_bound(corpus: Corpus) -> np.ndarray:
    """Return the mean ratio of batches to the lower bound for LatticeLSTM's released graph."""
    sizes = ModelSizes(4, corpus.sizes)
    model = LatticeLSTM(sizes)
    policies = ("depth", "agenda_dynamic", "sufficient", "sufficient_reversed")
    ratios = []
    for batch in draw_mini_batches(corpus, 32, 6, seed=0):
        graph = build_released_graph(model, model.mini_batch(batch))
        bound = compute_lower_bound(graph)
        ratios.append([load_policy(name)(graph).n_batches / bound for name in policies])
    return np.mean(ratios, axis=0)


def test_policies_need_as_many_batches_as_on_the_real_ones(data_root: Path) -> None:
    # For 32 lattices, both agree within 15%. DyNet's agenda is omitted, because its count varies by
    # a third between mini-batches of either corpus.
    expected = batches_over_bound(load_shipped("weibo_lattice", data_root))
    drawn = batches_over_bound(load("lattice_synthetic", None))
    np.testing.assert_allclose(drawn, expected, rtol=0.15)
