"""WikiNER: tagged words, the rare ones spelled out; on made-up sentences."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from harness.errors import ConfigError, DataError
from harness.values.instances import Chain
from tests.support.corpora import options_of
from tests.support.sentence_files import WIKINER, load, write

WORDS = {w: i for i, w in enumerate(["Ann", "lives", "in", "Rome", ".", "Bob"])}
LETTERS = {c: i for i, c in enumerate(["", *"Anlives", *"Rom", ".", *"Bb"])}
TAGS = {"I-PER": 0, "O": 1, "I-LOC": 2}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "wikiner", WIKINER, ".txt")
    return tmp_path


def spelled(chain: Chain) -> list[list[int]]:
    """The letters of every word."""
    letters = chain.characters.tolist()
    return [letters[start:end] for start, end in pairwise(chain.char_start)]


def test_words_and_tags_are_numbered_as_they_appear(root: Path) -> None:
    corpus = load("wikiner", root)
    assert corpus.sizes == {"words": 7, "characters": len(LETTERS) + 1, "classes": 3}
    assert (corpus.name, corpus.instance_kind) == ("wikiner", "chain")
    first = corpus.instances[0]
    assert first.words.tolist() == [WORDS[w] for w in ["Ann", "lives", "in", "Rome", "."]]
    assert first.labels.tolist() == [TAGS[t] for t in ["I-PER", "O", "O", "I-LOC", "O"]]


def test_words_below_the_count_are_spelled_between_two_pads(root: Path) -> None:
    # "." is there three times, Ann and lives twice, all others once.
    lengths = {w: len(w) + 2 for w in WORDS}
    for rare_below, rare in ((0, ""), (1, ""), (2, "in Rome Bob"), (3, "in Rome Bob Ann lives")):
        chain = load("wikiner", root, rare_below=rare_below).instances[0]
        found = [len(letters) for letters in spelled(chain)]
        assert found == [
            lengths[w] * (w in rare.split()) for w in ["Ann", "lives", "in", "Rome", "."]
        ]
    chain = load("wikiner", root, rare_below=2).instances[0]
    assert spelled(chain)[3] == [LETTERS[letter] for letter in ("", *"Rome", "")]
    # Words are known although they are rare.
    assert chain.words.tolist()[3] == WORDS["Rome"]


def test_all_of_these_words_are_rare_by_default(root: Path) -> None:
    assert all(spelled(load("wikiner", root).instances[0]))


def test_words_and_letters_that_the_training_part_lacks_share_a_row(root: Path) -> None:
    chain = load("wikiner", root, "dev", rare_below=0).instances[0]
    assert chain.words.tolist() == [6, WORDS["lives"], WORDS["in"], WORDS["Ann"]]
    unknown = len(LETTERS)
    assert spelled(chain) == [[0, unknown, LETTERS["v"], LETTERS["e"], 0], [], [], []]


def test_another_part_takes_the_training_part_s_place(root: Path) -> None:
    (root / "wikiner" / "train.txt").unlink()
    corpus = load("wikiner", root, vocabulary="dev")
    assert (corpus.name, corpus.split, corpus.size("words")) == ("wikiner_dev", "dev", 5)


def test_a_word_may_contain_the_bar_and_a_no_break_space(root: Path) -> None:
    write(root / "wikiner", {"train": "a|b|O |||O x\u00a0y|O\n"}, ".txt")
    corpus = load("wikiner", root)
    assert corpus.instances[0].words.tolist() == [0, 1, 2]
    assert corpus.size("classes") == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("a|O b|O\nc|O d\n", ":2: 'd' is not word|tag; put one blank between two"),
        ("a|O |O\n", ":1: '|O' is not word|tag"),
        ("a|O\nb|\n", ":2: 'b|' is not word|tag"),
        ("a|O  b|O\n", ":1: '' is not word|tag"),
        ("a|O \n", ":1: '' is not word|tag"),
        ("a|O\n\nb|O\n", ":2: the sentence is empty; a line needs at least one word|tag"),
        ("", " is empty"),
        ("a|O\n\xff|O\n".encode("latin-1"), ":2: not UTF-8 text"),
    ],
)
@pytest.mark.parametrize("part", ["train", "dev"])
def test_a_malformed_line_is_named(
    root: Path, part: str, content: str | bytes, reason: str
) -> None:
    write(root / "wikiner", {"train": "a|O\n", part: content}, ".txt")
    with pytest.raises(DataError) as caught:
        load("wikiner", root, part)
    assert f"wikiner/{part}.txt{reason}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_tag_that_the_training_part_lacks_is_named(root: Path) -> None:
    write(root / "wikiner", {"dev": "Ann|I-PER .|O\nAnn|I-ORG .|O\n"}, ".txt")
    reason = r"dev\.txt:2: tag 'I-ORG' is not in the part .* which has I-PER, O, I-LOC"
    with pytest.raises(DataError, match=reason):
        load("wikiner", root, "dev")


def test_there_is_no_test_part(root: Path) -> None:
    with pytest.raises(DataError, match="wikiner has no test part; it has train, dev"):
        load("wikiner", root, "test")


def test_a_negative_count_is_refused(root: Path) -> None:
    with pytest.raises(ConfigError, match="rare_below=-1 is not allowed"):
        load("wikiner", root, rare_below=-1)


def test_the_real_part_has_the_shape_that_is_told(data_root: Path) -> None:
    if not (data_root / "wikiner" / "dev.txt").is_file():
        pytest.skip(f"{data_root} has no wikiner/dev.txt")
    corpus = load("wikiner", data_root, **options_of("wikiner_dev"))
    assert (len(corpus.instances), sum(c.n_words for c in corpus.instances)) == (1696, 39_007)
    assert corpus.sizes == {"words": 8505, "characters": 157, "classes": 5}
    letters = np.concatenate([np.diff(chain.char_start) for chain in corpus.instances])
    assert (letters > 0).mean() == pytest.approx(0.289, abs=0.0005)
