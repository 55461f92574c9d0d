"""Mini-batches: drawn in order or by a seed, of fixed size, and hashed."""

from __future__ import annotations

import pytest

from dynbatch.harness.contracts.corpus import Corpus, draw_mini_batches, hash_inputs
from dynbatch.harness.errors import DataError
from dynbatch.harness.values.instances import Chain, Lattice, SentencePair, Tree, compute_sort_key
from dynbatch.harness.values.parsed import ParsedSentence
from tests.support.corpora import complete


def indices(corpus: Corpus, batches: list[tuple[Tree, ...]]) -> list[list[int]]:
    place = {id(tree): index for index, tree in enumerate(corpus.instances)}
    return [[place[id(tree)] for tree in batch] for batch in batches]


def test_mini_batches_in_the_files_order_wrap_around() -> None:
    corpus = complete(n_leaves=2, n_instances=5)
    found = indices(corpus, draw_mini_batches(corpus, 2, 4, seed=3, order="file"))
    assert found == [[0, 1], [2, 3], [4, 0], [1, 2]]


def test_shuffled_mini_batches_are_fixed_by_the_seed() -> None:
    corpus = complete(n_leaves=2, n_instances=20)
    one = indices(corpus, draw_mini_batches(corpus, 5, 8, seed=1))
    assert one == indices(corpus, draw_mini_batches(corpus, 5, 8, seed=1))
    assert one != indices(corpus, draw_mini_batches(corpus, 5, 8, seed=2))
    assert sorted(i for batch in one[:4] for i in batch) == list(range(20))
    assert one[:4] == one[4:]  # the second pass repeats the first


def sentences(lengths: list[int]) -> Corpus:
    chains = [Chain([0] * n, [0] * n) for n in lengths]  # type: ignore[arg-type]
    return Corpus("made_up", "train", chains, {"words": 1}, "", "", True, "chain")


def test_by_length_similar_instances_share_a_mini_batch() -> None:
    lengths = [5, 1, 9, 3, 5, 2, 9, 4, 5, 1, 7, 5]
    corpus = sentences(lengths)
    found = indices(corpus, draw_mini_batches(corpus, 3, 4, seed=4, order="length"))
    assert sorted(i for batch in found for i in batch) == list(range(12))
    spans = sorted((min(t), max(t)) for t in ([lengths[i] for i in batch] for batch in found))
    assert spans == [(1, 2), (3, 5), (5, 5), (7, 9)]
    firsts = [lengths[batch[0]] for batch in found]
    assert firsts != sorted(firsts)  # the mini-batches themselves are shuffled


def test_seed_decides_equal_lengths_and_left_out_instances() -> None:
    corpus = sentences([2] * 50 + [3] * 5)
    one = indices(corpus, draw_mini_batches(corpus, 10, 12, seed=1, order="length"))
    assert one == indices(corpus, draw_mini_batches(corpus, 10, 12, seed=1, order="length"))
    assert one != indices(corpus, draw_mini_batches(corpus, 10, 12, seed=2, order="length"))
    assert one[:5] == one[5:10]  # a pass has five mini-batches and drops five instances
    assert len({i for batch in one for i in batch}) == 50
    passes = (indices(corpus, draw_mini_batches(corpus, 10, 5, k, "length")) for k in range(4))
    assert len({frozenset(range(55)).difference(*batches) for batches in passes}) == 4


@pytest.mark.parametrize("order", ["shuffled", "file", "length"])
@pytest.mark.parametrize("n", [1, 4])
def test_no_mini_batch_has_an_instance_twice(n: int, order: str) -> None:
    corpus = complete(n_leaves=2, n_instances=5)
    for batch in indices(corpus, draw_mini_batches(corpus, 4, n, 0, order)):
        assert len(set(batch)) == 4
    with pytest.raises(DataError, match="has 5 instances in split train: expected at least batch_"):
        draw_mini_batches(corpus, 7, n, 0, order)


def test_every_kind_of_instance_has_a_length() -> None:
    parsed = ParsedSentence([0, 0, 0], [0, 0, 0], [1, 2], [0, 0])  # type: ignore[arg-type]
    lattice = Lattice([0, 0], [0, 0, 1], [0], [0])  # type: ignore[arg-type]
    pair = SentencePair([1, 2, 3], [1, 2])  # type: ignore[arg-type]
    tree = complete(n_leaves=4).instances[0]
    chain = sentences([6]).instances[0]
    found = [compute_sort_key(instance) for instance in (tree, lattice, chain, pair, parsed)]
    assert found == [(4,), (1,), (6,), (3, 2), (2,)]


def test_the_hash_of_inputs_sees_values_order_and_borders() -> None:
    a, b, c = complete(n_leaves=4).instances[:3]
    changed = Tree(a.words, (a.labels + 1) % 5, a.left, a.right)
    hashes = [
        hash_inputs(batches)
        for batches in ([[a, b], [c]], [[a], [b, c]], [[b, a], [c]], [[a, b]], [[changed, b], [c]])
    ]
    assert len(set(hashes)) == len(hashes)
    assert hashes[0] == hash_inputs([(a, b), (c,)])


@pytest.mark.parametrize("order", ["file", "shuffled", "length"])
def test_the_last_partial_mini_batch_is_kept_on_request(order: str) -> None:
    corpus = complete(n_leaves=2, n_instances=5)
    found = indices(corpus, draw_mini_batches(corpus, 2, 9, 0, order, last="keep"))
    assert [len(batch) for batch in found] == [2, 2, 1]
    assert sorted(index for batch in found for index in batch) == list(range(5))
    shorter = indices(corpus, draw_mini_batches(corpus, 2, 2, 0, order, last="keep"))
    assert shorter == found[:2]
    (only,) = indices(corpus, draw_mini_batches(corpus, 8, 9, 0, order, last="keep"))
    assert sorted(only) == list(range(5))
