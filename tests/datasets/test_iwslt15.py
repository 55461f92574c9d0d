"""IWSLT'15: pairs of sentences with their marks; on made-up ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ConfigError, DataError
from tests.support.corpora import options_of
from tests.support.sentence_files import IWSLT, load, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "iwslt15", IWSLT)
    return tmp_path


def test_sides_stand_between_marks(root: Path) -> None:
    corpus = load("iwslt15", root)
    assert (corpus.name, corpus.instance_kind) == ("iwslt15", "sentence_pair")
    assert corpus.sizes == {"source_words": 7, "target_words": 6}
    pairs = [(p.source.tolist(), p.target.tolist()) for p in corpus.instances]
    assert pairs[0] == ([1, 3, 4, 2], [1, 3, 4, 2])
    assert pairs[1] == ([1, 5, 6, 4, 2], [1, 4, 5, 2])
    assert pairs[2] == ([1, 0, 2], [1, 0, 2])  # words that the vocabularies lack
    assert corpus.skipped == {"with an empty side": 0}


def test_ids_may_share_rows_as_in_the_release(root: Path) -> None:
    corpus = load("iwslt15", root, vocab_modulo=4)
    assert corpus.sizes == {"source_words": 4, "target_words": 4}
    assert corpus.instances[1].source.tolist() == [1, 1, 2, 0, 2]
    with pytest.raises(ConfigError, match="vocab_modulo=-1 is not allowed"):
        load("iwslt15", root, vocab_modulo=-1)


def test_the_development_part_needs_no_training_file(root: Path) -> None:
    (root / "iwslt15" / "train.en").unlink()
    dev = load("iwslt15", root, "dev")
    assert (dev.name, dev.split) == ("iwslt15", "dev")
    assert dev.instances[0].source.tolist() == [1, 5, 0, 2]
    stand_in = load("iwslt15", root, vocabulary="dev")
    assert (stand_in.name, stand_in.split, stand_in.sha256) == ("iwslt15_dev", "dev", dev.sha256)
    with pytest.raises(DataError, match=r"iwslt15/train\.en is missing"):
        load("iwslt15", root)


def test_the_checksum_of_a_corpus_sees_every_file(root: Path) -> None:
    before = load("iwslt15", root).sha256
    for name in ("train.en", "train.vi", "vocab.en", "vocab.vi"):
        write(root / "iwslt15", {name: IWSLT[name] + "more\n"})
        if name.startswith("train"):
            other = name.replace(".en", ".??").replace(".vi", ".en").replace(".??", ".vi")
            write(root / "iwslt15", {other: IWSLT[other] + "more\n"})
        assert load("iwslt15", root).sha256 != before
        write(root / "iwslt15", IWSLT)


@pytest.mark.parametrize("name", ["train.en", "vocab.vi"])
def test_checksums_are_told_by_file(root: Path, name: str) -> None:
    with pytest.raises(DataError, match=f"{name} has sha256 .*, expected 00"):
        load("iwslt15", root, sha256={name.replace(".", "_"): "00"})


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"train.en": "a\nb\n"}, "train.en has 2 lines and {}train.vi 3; each sentence needs its"),
        ({"train.vi": "a\nb\nc\nd\n"}, "train.en has 3 lines and {}train.vi 4; each"),
        ({"train.vi": "a\n\nc\n"}, "train.vi:2: the sentence is empty; give it words, or leave"),
        ({"train.en": "a\nb\n \n"}, "train.en:3: the sentence is empty"),
        ({"train.en": "a\nb ||| c\nd\n"}, "train.en:2: the word ||| is a mark, which loading adds"),
        ({"train.vi": "<s> a </s>\nb\nc\n"}, "train.vi:1: the word <s> is a mark"),
        ({"train.en": ""}, "train.en is empty"),
        ({"train.vi": b"a\nb\n\xff\n"}, "train.vi:3: not UTF-8 text"),
        ({"vocab.en": "<unk>\n<s>\n</s>\na b\n"}, "vocab.en:4: 'a b' is not a word; give one a"),
        ({"vocab.en": "<unk>\n<s>\n\n</s>\n"}, "vocab.en:3: '' is not a word"),
        ({"vocab.vi": "<unk>\n<s>\n</s>\n<s>\n"}, "vocab.vi:4: the word '<s>' is on line 2, too"),
        ({"vocab.vi": "<unk>\n<s>\na\n"}, "vocab.vi lacks </s>; it must have <unk>, <s> and </s>"),
    ],
)
def test_what_is_no_corpus_is_one_line(
    root: Path, files: dict[str, str | bytes], reason: str
) -> None:
    write(root / "iwslt15", files)
    with pytest.raises(DataError) as caught:
        load("iwslt15", root)
    folder = f"{root}/iwslt15/"
    assert str(caught.value).startswith(folder + reason.format(folder))
    assert "\n" not in str(caught.value)


def test_pairs_with_an_empty_side_can_be_left_out_of_the_training_part(root: Path) -> None:
    write(root / "iwslt15", {"train.vi": "một nhà\n\nkhông\n", "train.en": "\nold\nhouse\n"})
    corpus = load("iwslt15", root, empty_train_pairs="skip")
    assert [pair.source.tolist() for pair in corpus.instances] == [[1, 4, 2]]
    assert corpus.skipped == {"with an empty side": 2}
    write(root / "iwslt15", {"tst2012.vi": "\n", "tst2012.en": "a\n"})
    with pytest.raises(DataError, match=r"tst2012\.vi is empty"):
        load("iwslt15", root, "dev", empty_train_pairs="skip")
    write(root / "iwslt15", {"tst2012.vi": "b\n\n", "tst2012.en": "a\nb\n"})
    with pytest.raises(DataError, match=r"tst2012\.vi:2: the sentence is empty; give it words$"):
        load("iwslt15", root, "dev", empty_train_pairs="skip")
    with pytest.raises(ConfigError, match="empty_train_pairs=drop is unknown; choose one of"):
        load("iwslt15", root, empty_train_pairs="drop")


def test_the_real_parts_have_the_shape_that_is_told(data_root: Path) -> None:
    if not (data_root / "iwslt15").is_dir():
        pytest.skip(f"{data_root} has no iwslt15/")
    for split, n_pairs in (("dev", 1553), ("test", 1268)):
        corpus = load("iwslt15", data_root, split, **options_of("iwslt15_dev"))
        assert len(corpus.instances[:]) == n_pairs
        assert corpus.sizes == {"source_words": 17_191, "target_words": 7709}
