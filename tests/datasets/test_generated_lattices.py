"""Generated lattices: statistics and batch counts compared with those of the real ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from dynbatch.harness.contracts.corpus import Corpus, draw_mini_batches
from dynbatch.harness.contracts.model import ModelSizes
from dynbatch.harness.contracts.policy import load_policy
from dynbatch.harness.granularity.released import build_released_graph
from dynbatch.harness.models.lattice_lstm import LatticeLSTM
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.values.instances import Lattice
from tests.support.corpora import load, load_shipped


def drawn_lattices() -> Corpus:
    return load("lattice_synthetic", None)


def lattices(corpus: Corpus) -> list[Lattice]:
    return [lattice for lattice in corpus.instances if isinstance(lattice, Lattice)]


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
    corpus = drawn_lattices()
    assert corpus.synthetic
    assert (corpus.instance_kind, corpus.get_size("classes")) == ("lattice", 18)
    assert (corpus.get_size("words"), corpus.get_size("characters")) == (10_131, 2_213)
    drawn = lattices(corpus)
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
    drawn, found = lattices(drawn_lattices()), lattices(load_shipped("weibo_lattice", data_root))
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
    np.testing.assert_allclose(batches_over_bound(drawn_lattices()), expected, rtol=0.15)
