"""Lattices from text and a lexicon: which words are found, and what is wrong input."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from datasets.reading import lexicon
from datasets.reading.conll import read_sentences
from datasets.reading.lexicon import Lexicon, jieba_lexicon
from datasets.shape import lattice_shapes
from harness.contracts.corpus import Corpus, load_corpus
from harness.errors import ConfigError, DataError
from harness.values.instances import Lattice
from harness.values.places import CONF_DIR

TRAIN = "北0\tB-GPE.NAM\n京1\tI-GPE.NAM\n市2\tI-GPE.NAM\n80\tO\n\n的0\tO\n北0\tO\n京1\tO\n"
DEV = "北0\tO\n海1\tO\n市2\tO\n"
WORDS = frozenset({"北京", "京市", "北京市", "北海", "海市"})


@pytest.fixture
def _few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexicon, "_read", lambda: Lexicon("five words", WORDS, "abc"))


@pytest.fixture
def _fresh_lexicon() -> Iterator[None]:
    """Nothing read before, nothing of this test kept."""
    lexicon._read.cache_clear()
    yield
    lexicon._read.cache_clear()


def write(root: Path, train: str = TRAIN, dev: str = DEV) -> None:
    (root / "weibo").mkdir()
    for split, text in (("train", train), ("dev", dev)):
        (root / "weibo" / f"{split}.conll").write_bytes(text.encode())


def load(root: Path, split: str = "train", **options: Any) -> Corpus:
    return load_corpus("datasets.weibo_lexicon", split, root, **options)


def arcs_into(lattice: Lattice, state: int) -> list[tuple[int, int]]:
    """Source and token of every arc, in order."""
    arcs = slice(lattice.arc_start[state], lattice.arc_start[state + 1])
    return list(zip(lattice.sources[arcs].tolist(), lattice.tokens[arcs].tolist(), strict=True))


# Words in a sentence


@given(
    st.text("abc", max_size=12),
    st.frozensets(st.text("abc", min_size=2, max_size=5)),
    st.integers(1, 6),
)
def test_every_word_is_found_where_it_ends(
    sentence: str, words: frozenset[str], max_length: int
) -> None:
    into = Lexicon("some words", words, "").words_into(sentence, max_length)
    assert len(into) == len(sentence)
    for end, found in enumerate(into, 1):
        before = sentence[:end]
        fit = [word for word in words if before.endswith(word) and len(word) <= max_length]
        assert found == sorted(fit, key=len, reverse=True)


def test_jieba_s_dictionary_is_read_without_its_code() -> None:
    code = (
        "import sys; from datasets.reading.lexicon import jieba_lexicon;"
        "words = jieba_lexicon().words;"
        "print(len(words), min(map(len, words)), max(map(len, words)), 'jieba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "337465 2 16 False"
    assert done.stderr == ""
    assert jieba_lexicon() is jieba_lexicon()


@pytest.mark.usefixtures("_fresh_lexicon")
def test_without_jieba_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(lexicon, "distribution", missing)
    write(tmp_path)
    with pytest.raises(
        DataError, match="needs the package jieba, which is not installed; run `pip"
    ):
        load(tmp_path)


@pytest.mark.usefixtures("_fresh_lexicon")
def test_a_jieba_without_its_dictionary_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexicon, "FILE", "jieba/nothing.txt")
    with pytest.raises(DataError, match=r"nothing\.txt cannot be read .* --force-reinstall jieba"):
        jieba_lexicon()


def test_another_dictionary_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(DataError, match=r"the dictionary of jieba .* expected 00; run `pip inst"):
        load(tmp_path, sha256={"lexicon": "00"})


# Lattices


@pytest.mark.usefixtures("_few_words")
def test_characters_words_and_labels_are_numbered_as_they_appear(tmp_path: Path) -> None:
    write(tmp_path)
    corpus = load(tmp_path)
    first, second = corpus.instances
    assert (corpus.size("characters"), corpus.size("words"), corpus.size("classes")) == (
        5 + 1,
        3 + 1,
        3 + 1,
    )
    assert first.tags.tolist() == [0, 1, 2, 2, 3]
    assert [arcs_into(first, state) for state in range(5)] == [
        [],
        [(0, 0)],
        [(1, 1), (0, 0)],
        [(2, 2), (0, 1), (1, 2)],
        [(3, 3)],
    ]
    assert arcs_into(second, 1) == [(0, 4)]
    assert arcs_into(second, 3) == [(2, 1), (1, 0)]
    assert corpus.source.endswith("with the words of five words")


@pytest.mark.usefixtures("_few_words")
def test_what_the_training_split_lacks_is_unknown(tmp_path: Path) -> None:
    write(tmp_path)
    corpus = load(tmp_path, "dev")
    assert (corpus.size("characters"), corpus.size("words"), corpus.size("classes")) == (6, 4, 4)
    assert arcs_into(corpus.instances[0], 2) == [(1, 5), (0, 3)]
    assert arcs_into(corpus.instances[0], 3) == [(2, 2), (1, 3)]


@pytest.mark.usefixtures("_few_words")
def test_options(tmp_path: Path) -> None:
    write(tmp_path)
    assert load(tmp_path, max_word_length=2).instances[0].n_arcs == 4 + 2
    assert load(tmp_path, max_word_length=1).instances[0].n_arcs == 4
    shared = load(tmp_path, vocab_modulo=2)
    assert (shared.size("words"), shared.size("characters")) == (2, 2)
    assert arcs_into(shared.instances[0], 3) == [(2, 0), (0, 1), (1, 0)]
    with pytest.raises(ConfigError, match="max_word_length=0 is not allowed"):
        load(tmp_path, max_word_length=0)


@pytest.mark.usefixtures("_few_words")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("北0 O\n", r":1: '北0 O' is not a character, a tab and a label"),
        ("北0\tO\n\t\n", r":2: '\\t' is not a character, a tab"),
        ("北0\tO\n北0\tO\tO\n", r":2: "),
        ("北0\tO\n\n京0\tB-SUN\n", r":3: label 'B-SUN' is not in the training split, which has B-"),
        ("", " is empty; it needs one character and its label a line"),
        ("\n\n", " is empty"),
    ],
)
def test_a_malformed_file_gives_file_line_and_reason(
    tmp_path: Path, text: str, reason: str
) -> None:
    write(tmp_path, dev=text)
    with pytest.raises(DataError, match=r"weibo/dev\.conll" + reason) as caught:
        load(tmp_path, "dev")
    assert "\n" not in str(caught.value)


def test_bytes_that_are_not_text_give_file_and_line() -> None:
    with pytest.raises(DataError, match="a file:2: not UTF-8"):
        read_sentences(b"a0\tO\n\xff0\tO\n", "a file")


def test_digits_and_long_characters_keep_their_place() -> None:
    (sentence,) = read_sentences("80\tO\r\n811\tO\r\n\ufffd\ufffd0\tO\n8\tO\n".encode(), "a file")
    assert sentence.characters == ("8", "8", "\ufffd\ufffd", "8")
    assert sentence.text == "88\ufffd8"


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train\.conll is missing; run `bench-data fetch weibo_le"):
        load(tmp_path)
    with pytest.raises(DataError, match="weibo_lexicon needs a data_root"):
        load_corpus("datasets.weibo_lexicon", "train", None)


def test_statistics_of_the_real_text(data_root: Path) -> None:
    if not (data_root / "weibo").is_dir():
        pytest.skip(f"{data_root} has no weibo/")
    choice = yaml.safe_load((CONF_DIR / "dataset" / "weibo_lexicon.yaml").read_text())
    corpus = load(data_root, **choice["options"])
    shapes = lattice_shapes([x for x in corpus.instances if isinstance(x, Lattice)], 18)
    assert (corpus.size("words"), corpus.size("characters"), corpus.size("classes")) == (
        8386,
        3129,
        18,
    )
    assert (shapes.n_instances, shapes.n_characters, shapes.n_words) == (1350, 73_778, 22_670)
    assert shapes.arcs_into == (1350, 52_674, 19_675, 1293, 135, 1)
    assert shapes.word_lengths == (0, 0, 20_231, 1731, 695, 10, 1, 2)
    assert shapes.n_words_used == corpus.size("words") - 1
