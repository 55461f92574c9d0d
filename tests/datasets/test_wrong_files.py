"""Malformed, missing and binary corpus files: one-line errors with location and reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dynbatch.datasets.parts.reading import decode_text
from dynbatch.harness.contracts.corpus import Corpus, hash_inputs
from dynbatch.harness.contracts.home import find_home
from dynbatch.harness.errors import DataError
from dynbatch.harness.values.paths import ROOT
from tests.support.corpora import (
    EXCERPTS,
    LATTICES,
    READERS,
    first_file,
    load,
    word,
    write_corpus,
)
from tests.support.corpora import change_lattices as changed
from tests.support.processes import in_time

# Wrong lines between right ones, each with its reason.
TREES = {
    "(2 (1 a) (1 b)": "unbalanced: 1 '(' not closed",
    "(2 (1 a) (1 b)))": "unbalanced: ')' without '('",
    "((1 a) (1 b))": "no label after '('",
    "(5 a)": "label '5' is not an integer from 0 to 4",
    "(2 (1 a))": "a vertex has 1 child, not two",
    "(2 (1 a) (1 b) (1 c))": "a vertex has 3 children, not two",
    "(2 (1 a) b)": "a vertex has both the word 'b' and children",
    "(2 b (1 a))": "a vertex has both the word 'b' and children",
    "(2 two words)": "a leaf has 2 words",
    "(2 )": "a leaf has an empty word",
    "(2 a) more": "the text 'more' follows the tree",
    "(2 a) (2 b)": "a second tree follows the tree",
    "word": "the text 'word' is outside a tree",
    "": "the line is empty",
}
GOOD = [word("1", "a", "X", "2", "dep"), word("2", "b", "X", "0", "root")]
HEAD = "invalid HEAD: expected 0 (root) or a word's ID up to"
CYCLE = ":3: the heads of the sentence form a cycle"
PARSED: list[tuple[list[str], str]] = [
    ([GOOD[0], "2\tb\tX"], ":4: expected 10 tab-separated columns (CoNLL-U), got 3"),
    ([GOOD[0], word("3", "b", "X", "0", "root")], ":4: invalid ID: expected 2, got '3'"),
    ([word("0", "a", "X", "0", "root")], ":3: invalid ID: expected 1, got '0'"),
    ([word("1", "a", "X", "x", "root")], f":3: {HEAD} 1, got 'x'"),
    ([word("1", "a", "X", "-1", "root")], f":3: {HEAD} 1, got '-1'"),
    ([GOOD[0], word("2", "b", "X", "3", "root")], f":4: {HEAD} 2, got '3'"),
    ([word("1", "a", "_", "0", "root")], ":3: the word has no UPOS; add it"),
    ([word("1", "a", "X", "0", "_")], ":3: the word has no DEPREL"),
    ([word("1", "", "X", "0", "root")], ":3: the word has no FORM"),
    (["# only a comment"], ":3: the sentence is empty: expected words, got only comments"),
    ([GOOD[0], word("2", "b", "X", "1", "dep")], CYCLE),
    ([word("1", "a", "X", "1", "dep")], CYCLE),
    ([word("1", "a", "X", "9" * 5000, "root")], f":3: {HEAD} 1, got '9999999999"),
    ([word("1", "a", "X", "0" * 5000, "root")], f":3: {HEAD} 1, got '0000000000"),
    ([*GOOD, word("3", "c", "X", "0", "root")], ":5: HEAD is 0 for 2 words: expected one root"),
]
WRONG: dict[str, list[tuple[str, str]]] = {
    "sst": [(f"(2 a)\n{line}\n(2 a)\n", f":2: {reason}") for line, reason in TREES.items()],
    "ptb": [
        ("a b\n\nc\n", ":2: the sentence is empty: expected at least one word"),
        ("a b\n \nc\n", ":2: the sentence is empty"),
        ("a b\nc <eos> d\n", ":2: the word <eos> is reserved for the loader; remove it"),
    ],
    "wikiner": [
        ("a|O b|O\nc|O d\n", ":2: expected word|tag, got 'd'; separate them by one space"),
        ("a|O |O\n", ":1: expected word|tag, got '|O'"),
        ("a|O\nb|\n", ":2: expected word|tag, got 'b|'"),
        ("a|O \n", ":1: expected word|tag, got ''"),
        ("a|O\n\nb|O\n", ":2: the sentence is empty: expected at least one word|tag"),
        ("a|O\tb|O\n", ":1: expected word|tag, got"),
        ("The|DT|O cat|NN|I-PER\n.|.|O\n", ":1: expected word|tag, got 'The|DT|O' and no other"),
    ],
    "ud_ewt": [
        ("\n".join([word("1", "a", "X", "0", "root"), "", *lines, ""]), reason)
        for lines, reason in PARSED
    ],
    "weibo_lattice": [
        (changed(7, "3 2 7 0 31 3 32"), ":7: an arc into state 3 comes from itself"),
        (changed(6, "2 1 6 3 30"), ":6: an arc into state 2 comes from state 3"),
        (changed(6, "2 2 6 0 30"), ":6: an arc into state 2 comes from itself"),
        (changed(5, "0"), ":5: state 1 has no incoming arc: expected its character's, from 0"),
        (changed(7, "1 1 32"), ":7: arc 1 into state 3 comes from state 1"),
        (changed(7, "2 1 32 2 7"), ":7: arc 1 into state 3 comes from state 1: expected only"),
        (changed(7, "2 2 7 2 8"), ":7: arc 2 into state 3 comes from state 2: expected only"),
        (changed(4, "1 0 5"), ":4: state 0 has 1 incoming arcs: expected 0"),
        (changed(6, "2 1 6"), ":6: state 2 with 2 arcs: expected 4 numbers, got 2"),
        (LATTICES + "\v", r":14: expected a whole number of at least 0, got '\x0b'"),
        (changed(1, "1"), ":9: text after the 1 lattices of line 1; fix"),
        (changed(1, "3"), ":13: the file is truncated: it ends before lattice 3 of 3"),
        (changed(1, "0"), ":1: expected at least 1 lattice, got 0"),
        (changed(1, "2 2"), ":1: expected the number of lattices, got 2 numbers"),
        (changed(2, "5"), ":8: lattice 1 of 2 ends after 4 of the 5 states of line 2"),
        (changed(2, "3"), ":7: expected a blank line after the 3 states of lattice 1 of 2"),
        (changed(2, "1"), ":2: lattice 1 of 2: expected at least 2 states (one character), got 1"),
        (changed(2, ""), ":2: lattice 1 of 2: expected its number of states, got 0 numbers"),
        (changed(3, "0 3 1"), ":3: expected 4 tags, one per state, got 3"),
        (changed(3, "0 3 18 2"), ":3: tag 18 is out of range: expected 0 to 17"),
        (changed(10, "1 3"), ":10: invalid tag of state 0: expected 0, got 1"),
        (changed(8, "2"), ":8: expected a blank line after the 4 states of lattice 1 of 2"),
        (LATTICES.rstrip("\n") + "\n", ":12: the file is truncated: it ends within lattice 2 of 2"),
        (LATTICES + "\n3\n", ":15: text after the 2 lattices of line 1; fix"),
        (LATTICES + "the end\n", ":14: expected a whole number of at least 0, got 'the'"),
        (changed(6, "2 1 6 0 x30"), ":6: expected a whole number of at least 0, got 'x30'"),
        (changed(6, "2 1 6 0 -3"), ":6: expected a whole number of at least 0, got '-3'"),
        (changed(6, "2 1 6 0 4000000000"), ":6: 4000000000 is too large"),
    ],
}


def refused(name: str, root: Path, split: str = "train") -> str:
    """Return the one-line error message of loading a corpus."""
    with pytest.raises(DataError) as caught:
        load(name, root, split)
    line = str(caught.value)
    assert "\n" not in line
    assert "\r" not in line
    return line


def same(first: Corpus, second: Corpus) -> bool:
    """Return whether two corpora have equal instances."""
    digests = {hash_inputs([corpus.instances]) for corpus in (first, second)}
    return first.sizes == second.sizes and len(digests) == 1


def test_no_reader_of_the_folder_is_left_out() -> None:
    """Corpora that are read from files have a home; generated ones do not."""
    names = [path.stem for path in (ROOT / "datasets").glob("[!_]*.py")]
    assert {name for name in names if find_home(f"dynbatch.datasets.{name}")} == set(EXCERPTS)


@pytest.mark.parametrize("part", ["train", "dev"])
@pytest.mark.parametrize(("name", "index"), [(n, i) for n in WRONG for i in range(len(WRONG[n]))])
def test_malformed_data_are_located(name: str, index: int, part: str, tmp_path: Path) -> None:
    """The training part is read with any other part, too."""
    content, reason = WRONG[name][index]
    folder = write_corpus(name, tmp_path, **{part: content})
    suffix = Path(next(iter(EXCERPTS[name]))).suffix
    line = refused(name, tmp_path, part)
    assert line.startswith(f"{folder}/{part}{suffix}{reason}")
    is_harmless = name == "ptb" and "is empty" in reason  # for the words of the training part
    if part == "train" and not is_harmless:
        assert refused(name, tmp_path, "dev") == line


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"train_en": "a\nb\n"}, "train.en has 2 lines: expected 3, as in {}/train.vi; put"),
        ({"train_vi": "a\nb\nc\nd\n"}, "train.en has 3 lines: expected 4, as in {}/train.vi;"),
        ({"train_vi": "a\n\nc\n"}, "train.vi:2: the sentence is empty; add words, or set"),
        ({"train_en": "a\nb\n \n"}, "train.en:3: the sentence is empty"),
        ({"train_en": "a\nb ||| c\nd\n"}, "train.en:2: the word ||| is reserved for the loader"),
        ({"train_vi": "<s> a </s>\nb\nc\n"}, "train.vi:1: the word <s> is reserved"),
        ({"vocab_en": "<unk>\n<s>\n</s>\na b\n"}, "vocab.en:4: expected one word, got 'a b'; fix"),
        ({"vocab_en": "<unk>\n<s>\n\n</s>\n"}, "vocab.en:3: expected one word, got ''"),
        ({"vocab_vi": "<unk>\n<s>\n</s>\n<s>\n"}, "vocab.vi:4: repeats '<s>' of line 2; remove it"),
        ({"vocab_vi": "<unk>\n<s>\na\n"}, "vocab.vi has no </s>: expected <unk>, <s> and </s>;"),
    ],
)
def test_pairs_that_are_none_are_named(files: dict[str, str], reason: str, tmp_path: Path) -> None:
    folder = write_corpus("iwslt15", tmp_path, **files)
    assert refused("iwslt15", tmp_path).startswith(f"{folder}/{reason.format(folder)}")


def test_unknown_label_is_named(tmp_path: Path) -> None:
    folder = write_corpus("wikiner", tmp_path, dev="Ann|I-PER .|O\nAnn|I-ORG .|O\n")
    line = refused("wikiner", tmp_path, "dev")
    assert line.startswith(f"{folder}/dev.txt:2: tag 'I-ORG' is not in the")
    assert ": expected one of " in line


PASSED_OVER = {
    "a byte order mark": lambda content: b"\xef\xbb\xbf" + content,
    "carriage returns before line feeds": lambda content: content.replace(b"\n", b"\r\n"),
    "no newline at the end": lambda content: content.rstrip(b"\n"),
    "a blank line at the end": lambda content: content + b"\n",
    "blank lines at the end": lambda content: content + b"\n\n \n",
    "other blank lines at the end": lambda content: content + b"\r\n\t\n",
}


@pytest.mark.parametrize("change", PASSED_OVER)
@pytest.mark.parametrize("name", READERS)
def test_every_reader_tolerates_harmless_changes(name: str, change: str, tmp_path: Path) -> None:
    file = first_file(name, tmp_path)
    expected, content = load(name, tmp_path), file.read_bytes()
    file.write_bytes(PASSED_OVER[change](content))
    assert content != file.read_bytes()
    if name == "weibo_lattice" and change == "no newline at the end":  # a number may be truncated
        assert "the file is truncated" in refused(name, tmp_path)
    else:
        assert same(load(name, tmp_path), expected)


def test_several_blank_lines_separate_sentences_as_one_does(tmp_path: Path) -> None:
    file = first_file("ud_ewt", tmp_path)
    expected = load("ud_ewt", tmp_path)
    file.write_text("\n" + file.read_text().replace("\n\n", "\n\n\n"))
    assert same(load("ud_ewt", tmp_path), expected)


AS_TEXT = "; save the file as UTF-8 with line feeds"
NOT_UTF_8 = "not UTF-8 text" + AS_TEXT
EMPTY = " is empty; download it again or choose another file"
CARRIAGE_RETURN = "a carriage return without a line feed"
REFUSED = {
    "no UTF-8": (lambda content: content + b"\xff", NOT_UTF_8),
    "a NUL character": (lambda content: content + b"\0", "a NUL character" + AS_TEXT),
    "UTF-16": (lambda text: text.decode().encode("utf-16-le"), ":1: a NUL character" + AS_TEXT),
    "UTF-16 with its mark": (lambda text: text.decode().encode("utf-16"), NOT_UTF_8),
    "carriage returns alone": (lambda text: text.replace(b"\n", b"\r"), CARRIAGE_RETURN + AS_TEXT),
    "one in a line": (lambda text: b"\r" + text, f":1: {CARRIAGE_RETURN}{AS_TEXT}"),
    "nothing": (lambda _: b"", EMPTY),
    "a blank line": (lambda _: b"\n", EMPTY),
}


@pytest.mark.parametrize("change", REFUSED)
@pytest.mark.parametrize("name", READERS)
def test_readers_refuse_damaged_files_in_one_line(name: str, change: str, tmp_path: Path) -> None:
    file = first_file(name, tmp_path)
    spoil, reason = REFUSED[change]
    file.write_bytes(spoil(file.read_bytes()))
    line = refused(name, tmp_path)
    assert line.startswith(f"{file}")
    assert line.endswith(reason)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(("kind", "words"), [("pipe", "a FIFO"), ("folder", "a directory")])
def test_irregular_file_is_refused(name: str, kind: str, words: str, tmp_path: Path) -> None:
    file = first_file(name, tmp_path)
    file.unlink()
    os.mkfifo(file) if kind == "pipe" else file.mkdir()
    with in_time(60):
        assert words in refused(name, tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_missing_file_or_folder_error_gives_a_remedy(name: str, tmp_path: Path) -> None:
    file = first_file(name, tmp_path)
    file.unlink()
    line = refused(name, tmp_path)
    assert line.startswith(f"{file} is missing; run `bench-data fetch {name}`")
    reason = f"{name} needs a data_root; set BENCH_DATA .*{file.parent.name}/"
    with pytest.raises(DataError, match=reason):
        load(name, None)


@pytest.mark.parametrize("name", READERS)
def test_wrong_checksum_error_gives_found_expected_and_remedy(name: str, tmp_path: Path) -> None:
    file = first_file(name, tmp_path)
    home = find_home(f"dynbatch.datasets.{name}")
    part = next(part for part in home.origins if home.locate_part(tmp_path, part) == file)
    with pytest.raises(DataError) as caught:
        load(name, tmp_path, sha256={part: "00"})
    line = str(caught.value)
    assert line.startswith(f"{file} has sha256 ")
    assert f", expected 00; run `bench-data fetch {name}` to replace it" in line


@pytest.mark.parametrize("name", ["ptb", "wikiner", "ud_ewt", "iwslt15"])
def test_another_part_takes_the_training_part_s_place(name: str, tmp_path: Path) -> None:
    file = first_file(name, tmp_path)
    file.unlink()
    corpus = load(name, tmp_path, vocabulary="dev")
    assert (corpus.name, corpus.split) == (f"{name}_dev", "dev")
    assert load(name, tmp_path, "dev", vocabulary="dev").sha256 == corpus.sha256
    assert refused(name, tmp_path).startswith(f"{file} is missing")


def test_the_first_line_that_is_wrong_is_named() -> None:
    with pytest.raises(DataError, match=r"^here:3: a NUL character"):
        decode_text(b"a\nb\nc\0\n\0", "here")
    with pytest.raises(DataError, match=r"^here:2: not UTF-8 text"):
        decode_text(b"a\n\xff\n\0", "here")
    assert decode_text(b"a\nb", "here") == "a\nb"
