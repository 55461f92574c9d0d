"""Penn Treebank: chains of next words, by sentences and in pieces; on made-up text."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from harness.errors import ConfigError, DataError
from tests.support.corpora import options_of
from tests.support.sentence_files import PTB, load, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "ptb", PTB, ".txt")
    return tmp_path


# By frequency in the training text: the ends come first (3), then by count and spelling.
IDS = {w: i for i, w in enumerate(["<eos>", "the", "cat", "dog", "<unk>", "a", "sees"])}


def test_a_sentence_is_read_from_an_end_to_an_end(root: Path) -> None:
    corpus = load("ptb", root)
    assert (corpus.name, corpus.split, corpus.instance_kind) == ("ptb", "train", "chain")
    assert corpus.sizes == {"words": 10_000}
    assert [chain.n_words for chain in corpus.instances] == [6, 4, 3]
    text = ["the", "dog", "sees", "the", "cat"]
    assert corpus.instances[0].words.tolist() == [IDS[w] for w in ["<eos>", *text]]
    assert corpus.instances[0].labels.tolist() == [IDS[w] for w in [*text, "<eos>"]]
    assert len(corpus.instances[0].characters) == 0


def test_words_that_the_training_text_lacks_are_unknown(root: Path) -> None:
    corpus = load("ptb", root, "dev")
    text = ["the", "<unk>", "sees", "a", "dog"]
    assert corpus.instances[0].labels.tolist() == [IDS[w] for w in [*text, "<eos>"]]
    assert (corpus.name, corpus.split) == ("ptb", "dev")
    assert not corpus.synthetic


def test_another_part_takes_the_training_part_s_place(root: Path) -> None:
    (root / "ptb" / "train.txt").unlink()
    corpus = load("ptb", root, vocabulary="dev")
    assert (corpus.name, corpus.split, corpus.size("words")) == ("ptb_dev", "dev", 10_000)
    assert sorted(corpus.instances[0].labels.tolist()) == [0, 1, 2, 3, 4, 5]
    assert load("ptb", root, "dev", vocabulary="dev").sha256 == corpus.sha256
    with pytest.raises(DataError, match=r"ptb/train\.txt is missing; run `bench-data fetch ptb`"):
        load("ptb", root)


def test_more_words_than_ten_thousand_have_a_row_each(root: Path) -> None:
    write(root / "ptb", {"train": "".join(f"w{i} v{i}\n" for i in range(6000))}, ".txt")
    corpus = load("ptb", root)
    assert corpus.size("words") == 12_002  # the end and the unknown word, too
    assert max(chain.words.max() for chain in corpus.instances) < 12_002


@pytest.mark.parametrize("steps", [1, 3, 5, 13])
def test_pieces_are_the_text_cut_at_equal_lengths(root: Path, steps: int) -> None:
    sentences = load("ptb", root)
    pieces = load("ptb", root, steps=steps)
    assert (pieces.name, pieces.size("words")) == ("ptb_fixed", 10_000)
    assert len(pieces.instances) == 13 // steps
    labels = np.concatenate([chain.labels for chain in sentences.instances])
    read = np.concatenate([[IDS["<eos>"]], labels])
    for index, chain in enumerate(pieces.instances):
        here = slice(index * steps, (index + 1) * steps)
        assert chain.words.tolist() == read[here].tolist()
        assert chain.labels.tolist() == labels[here].tolist()


def test_a_text_shorter_than_a_piece_is_refused(root: Path) -> None:
    with pytest.raises(DataError, match=r"train\.txt has 13 words .* steps=14; give fewer"):
        load("ptb", root, steps=14)
    with pytest.raises(ConfigError, match="steps=-1 is not allowed"):
        load("ptb", root, steps=-1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("a b\n\nc\n", ":2: the sentence is empty; a line needs at least one word"),
        ("a b\n \nc\n", ":2: the sentence is empty"),
        ("a b\nc <eos> d\n", ":2: the word <eos> ends a sentence, which loading adds; leave it"),
        ("", " is empty"),
        ("\n", " is empty"),
        ("a\nb\n\xe9\n".encode("latin-1"), ":3: not UTF-8 text; save the file as UTF-8"),
        ("a b".encode("utf-16"), ":1: not UTF-8 text"),
    ],
)
@pytest.mark.parametrize("steps", [0, 1])
def test_wrong_text_is_one_line(root: Path, content: str | bytes, reason: str, steps: int) -> None:
    write(root / "ptb", {"train": content}, ".txt")
    with pytest.raises(DataError) as caught:
        load("ptb", root, steps=steps)
    assert f"ptb/train.txt{reason}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_vocabulary_s_part_has_no_ends_either(root: Path) -> None:
    write(root / "ptb", {"train": "a b\nc <eos>\n"}, ".txt")
    with pytest.raises(DataError, match=r"ptb/train\.txt:2: the word <eos> ends"):
        load("ptb", root, "dev")


def test_a_word_may_hold_the_letters_of_an_end(root: Path) -> None:
    write(root / "ptb", {"train": "a <eos>b\n"}, ".txt")
    assert load("ptb", root).instances[0].n_words == 3


def test_lines_may_end_as_on_windows(root: Path) -> None:
    before = load("ptb", root).instances[:]
    write(root / "ptb", {"train": PTB["train"].replace("\n", "\r\n")}, ".txt")
    after = load("ptb", root).instances
    assert [c.words.tolist() for c in after] == [c.words.tolist() for c in before]


def test_checksums_of_either_kind_are_checked(root: Path) -> None:
    content = PTB["train"].encode()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    for right in (hashlib.sha256(content).hexdigest(), f"git-blob:{blob}", None):
        assert len(load("ptb", root, sha256={"train": right}).instances) == 3
    with pytest.raises(DataError, match=r"train\.txt has sha256 .*, expected 00; run `bench-data"):
        load("ptb", root, sha256={"train": "00"})
    with pytest.raises(DataError, match=f"train.txt has git-blob:{blob}, expected git-blob:00; "):
        load("ptb", root, sha256={"train": "git-blob:00"})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"vocabulary": "all"}, "vocabulary=all is unknown; choose one of train, dev, test"),
        ({"vocabulary": 3}, "vocabulary=3 is not allowed; give a text"),
        ({"steps": "64"}, "steps=64 is not allowed; give a whole number"),
    ],
)
def test_wrong_options_are_named(root: Path, options: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load("ptb", root, **options)


def test_without_a_root_there_is_a_line() -> None:
    with pytest.raises(DataError, match="ptb needs a data_root; set BENCH_DATA"):
        load("ptb", None)  # type: ignore[arg-type]


def test_the_real_text_has_the_published_shape(data_root: Path) -> None:
    if not (data_root / "ptb" / "dev.txt").is_file():
        pytest.skip(f"{data_root} has no ptb/dev.txt")
    corpus = load("ptb", data_root, **options_of("ptb_dev"))
    lengths = [chain.n_words for chain in corpus.instances]
    assert (len(lengths), sum(lengths), min(lengths), max(lengths)) == (3370, 73_760, 2, 75)
    fixed = load("ptb", data_root, **options_of("ptb_fixed_dev"))
    assert {chain.n_words for chain in fixed.instances} == {64}
    assert len(fixed.instances) == 73_760 // 64
