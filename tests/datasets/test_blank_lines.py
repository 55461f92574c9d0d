"""One rule for blank lines in the files of all corpora."""

from __future__ import annotations

from pathlib import Path

import pytest

from datasets import weibo_lexicon
from datasets.weibo_lexicon import Lexicon
from tests.support.corpora import READERS, first_file, load, write_corpus


@pytest.fixture(autouse=True)
def _few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    few = Lexicon("two words", frozenset({"北京", "京市"}), "abc")
    monkeypatch.setattr(weibo_lexicon, "_read_lexicon", lambda: few)


@pytest.mark.parametrize("blank", ["\n", "\n\n \n", "\r\n\t\n"])
@pytest.mark.parametrize("name", READERS)
def test_blank_lines_at_the_end_of_a_file_are_nothing(
    name: str, blank: str, tmp_path: Path
) -> None:
    write_corpus(name, tmp_path)
    expected = [repr(instance) for instance in load(name, tmp_path).instances]
    file = first_file(name, tmp_path)
    file.write_bytes(file.read_bytes() + blank.encode())
    assert [repr(instance) for instance in load(name, tmp_path).instances] == expected


@pytest.mark.parametrize("name", ["ud_ewt", "weibo_lexicon"])
def test_several_blank_lines_separate_sentences_as_one_does(name: str, tmp_path: Path) -> None:
    write_corpus(name, tmp_path)
    expected = [repr(instance) for instance in load(name, tmp_path).instances]
    file = first_file(name, tmp_path)
    file.write_text("\n" + file.read_text().replace("\n\n", "\n\n\n"))
    assert [repr(instance) for instance in load(name, tmp_path).instances] == expected
