"""Text that is no UTF-8 is refused by every reader of text, with the line that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from datasets.reading.conll import read_sentences
from datasets.reading.parts import decoded
from harness.errors import DataError
from tests.support.sentence_files import IWSLT, PTB, UD, WIKINER, load, write

FILES = {
    "ptb": ({"train": PTB["train"]}, ".txt"),
    "wikiner": ({"train": WIKINER["train"]}, ".txt"),
    "iwslt15": (IWSLT, ""),
    "ud_ewt": ({"train": UD["train"]}, ".conllu"),
    "sst": ({"train": "(2 a)\n(3 (2 a) (1 b))\n"}, ".txt"),
}


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", FILES)
def test_text_in_utf_16_is_named(name: str, encoding: str, tmp_path: Path) -> None:
    files, suffix = FILES[name]
    coded = {file: text.encode(encoding) for file, text in files.items()}
    write(tmp_path / name, coded, suffix)
    with pytest.raises(
        DataError,
        match=r":1: a NUL character; save the file as UTF-8, its lines ended by a line feed$",
    ) as caught:
        load(name, tmp_path)
    assert "\n" not in str(caught.value)


def test_labelled_characters_in_utf_16_are_named() -> None:
    with pytest.raises(DataError, match="here:1: a NUL character"):
        read_sentences("a0\tO\n".encode("utf-16-le"), "here")


def test_the_first_line_with_a_nul_character_is_named() -> None:
    with pytest.raises(DataError, match=r"^here:3: a NUL character"):
        decoded(b"a\nb\nc\0\n\0", "here")
    with pytest.raises(DataError, match=r"^here:2: not UTF-8 text"):
        decoded(b"a\n\xff\n\0", "here")
    assert decoded(b"a\nb", "here") == "a\nb"
