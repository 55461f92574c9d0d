"""The campaign's own checks of corpora, and its verdicts on what readers make of damaged files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from scripts.campaign_parts.case import Case, cases_of
from scripts.campaign_parts.classes import corpora as corpora_class
from scripts.campaign_parts.classes.corpora import fault_of_no_file, judged, write
from scripts.campaign_parts.corpus_files import CorpusFiles, corpora
from scripts.campaign_parts.mutations import INSTEAD, MUTATIONS, mutated
from scripts.campaign_parts.reads_corpora import answer
from scripts.campaign_parts.well_formed import CHECKS, IllFormedError, n_instances

NAMES = tuple(corpora())
WHOLE = {"content": "of whole", "n_read": 2}
FILES = {"ptb/train.txt": b"a b\nc\n"}

ILL_FORMED = [
    *[("sst", text) for text in ("", "(5 a)\n", "(1 a\n", "(1 a))\n", "(1 a b)\n", "(1 (1 a))\n")],
    *[
        ("sst", text)
        for text in ("(1 a)(1 b)\n", "x\n", "(1 (1 a) b)\n", "(1 a)\n\n(1 a)\n", "(1)\n")
    ],
    *[("ptb", text) for text in ("", "a\n\nb\n", "a <eos>\n", "a\0b\n", "a\n  \n")],
    *[("wikiner", text) for text in ("", "a\n", "a|O  b|O\n", "|O\n", "a|\n", "a|O \n")],
    *[("ud_ewt", text) for text in ("", "1\ta\n", "# only\n\n", "\n\n")],
    *[("weibo_lattice", text) for text in ("", "0\n", "1\n2\n0 1\n0\n", "1\n2\n0 1\n0\n1 1 5\n\n")],
    ("weibo_lattice", "1\n2\n0 1\n0\n1 0 5\n"),  # no blank line behind the last
    *[("weibo_lattice", text) for text in ("1\n2\n0 18\n0\n1 0 5\n\n", "1\n2\n0 1\n0\n1 0 x\n\n")],
    *[("weibo_lexicon", text) for text in ("", "\n\n", "a0 O\n", "a0\t\n", "a0\tO O\n", "\tO\n")],
]


@pytest.fixture(params=NAMES)
def corpus(request: pytest.FixtureRequest) -> tuple[str, CorpusFiles]:
    return request.param, corpora(5)[request.param]


def test_there_is_a_check_for_every_corpus_that_is_read_from_files() -> None:
    assert set(CHECKS) == set(NAMES)


def test_undamaged_files_are_well_formed_and_read_as_so_many(
    corpus: tuple[str, CorpusFiles], tmp_path: Path
) -> None:
    name, one = corpus
    write(one.files, tmp_path)
    found = answer({"loader": one.loader, "root": str(tmp_path)})
    if "jieba" in found.get("refused", ""):
        pytest.skip(found["refused"])
    assert found["n_read"] == n_instances(name, one.files) > 1
    assert answer({"loader": one.loader, "root": str(tmp_path)}) == found


@pytest.mark.parametrize(("name", "text"), ILL_FORMED)
def test_what_is_ill_formed_is_told(name: str, text: str) -> None:
    (file,) = corpora()[name].files
    with pytest.raises(IllFormedError):
        n_instances(name, {file: text.encode()})


@pytest.mark.parametrize(
    ("heads", "is_tree"),
    [("0 1", True), ("2 0", True), ("0 0", False), ("2 1", False), ("3 0", False)],
)
def test_heads_are_one_tree_or_not(heads: str, is_tree: bool) -> None:
    rows = [
        "\t".join([str(n), "a", "_", "X", "_", "_", head, "dep", "_", "_"])
        for n, head in enumerate(heads.split(), 1)
    ]
    files = {"ud_ewt/train.conllu": "\n".join(rows).encode()}
    if is_tree:
        assert n_instances("ud_ewt", files) == 1
    else:
        with pytest.raises(IllFormedError):
            n_instances("ud_ewt", files)


@pytest.mark.parametrize("file", ["train.en", "vocab.vi"])
@pytest.mark.parametrize("damaged", [b"", b"<s>\n", b"a\n\n", b"a\na\n"])
def test_both_sides_and_vocabularies_are_checked(file: str, damaged: bytes) -> None:
    files = {**corpora()["iwslt15"].files, f"iwslt15/{file}": damaged}
    with pytest.raises(IllFormedError):
        n_instances("iwslt15", files)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_damages_as_its_seed_says(name: str) -> None:
    content = corpora()["sst"].files["sst/train.txt"]
    first = mutated(content, name, 1)
    assert first == mutated(content, name, 1)
    others = [mutated(content, name, seed) for seed in range(30)]
    assert all(one == content for one in others) == (name == "nothing")


def test_a_campaign_damages_every_corpus_in_every_way() -> None:
    cases = cases_of("corpora", corpora_class, 0, 1.0)
    pairs = {(case.does["corpus"], case.does["mutation"]) for case in cases}
    assert pairs == {(name, how) for name in NAMES for how in (*MUTATIONS, *INSTEAD)}


@pytest.mark.parametrize(
    ("mutation", "files", "found", "verdict"),
    [
        ("flip", FILES, {"content": "any", "n_read": 2}, "ok"),
        ("flip", FILES, {"content": "any", "n_read": 3}, "accepted"),
        ("flip", FILES, {"refused": "train.txt:1: a reason"}, "other"),
        ("flip", {"ptb/train.txt": b"\xff"}, {"content": "any", "n_read": 1}, "accepted"),
        ("flip", {"ptb/train.txt": b"\xff"}, {"refused": "train.txt:1: a reason"}, "ok"),
        ("flip", {"ptb/train.txt": b"\xff"}, {"refused": "two\nlines"}, "other"),
        ("bom", FILES, {"content": "of whole", "n_read": 2}, "ok"),
        ("bom", FILES, {"refused": "a byte order mark"}, "ok"),
        ("bom", FILES, {"content": "of others", "n_read": 2}, "accepted"),
        ("flip", FILES, {"hung": 8.0}, "hang"),
        ("flip", FILES, {"died": -9}, "other"),
        ("flip", FILES, {"traceback": "Traceback\nValueError: odd"}, "traceback"),
    ],
)
def test_verdicts_on_a_reader(
    mutation: str, files: Mapping[str, bytes], found: Mapping[str, Any], verdict: str
) -> None:
    does = {"corpus": "ptb", "mutation": mutation}
    assert judged(does, files, found, WHOLE).verdict == verdict


def test_what_is_not_read_here_is_skipped() -> None:
    does = {"corpus": "weibo_lexicon", "mutation": "flip"}
    found = {"refused": "the lexicon needs jieba"}
    assert judged(does, {"weibo/train.conll": b""}, found, found).verdict == "skipped"


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ({"refused": "a/train.txt is no file"}, "ok"),
        ({"refused": "no file"}, "other"),
        ({"content": "", "n_read": 0}, "accepted"),
        ({"hung": 8.0}, "hang"),
    ],
)
def test_verdicts_on_what_is_no_file(found: Mapping[str, Any], verdict: str) -> None:
    assert fault_of_no_file(found, "ptb/train.txt").verdict == verdict


@pytest.mark.parametrize("name", INSTEAD)
def test_something_stands_in_the_place_of_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "train.txt"
    path.write_text("words")
    INSTEAD[name](path)
    assert not path.is_file()


def test_a_stack_of_a_reader_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.campaign_parts.reads_corpora.load_corpus", lambda *_, **__: 1 / 0)
    found = answer({"loader": "datasets.ptb", "root": str(tmp_path)})
    assert found["traceback"].strip().endswith("ZeroDivisionError: division by zero")


@pytest.mark.slow
def test_one_process_reads_many_files(tmp_path: Path) -> None:
    with corpora_class.runner(tmp_path) as run:
        for number, mutation in enumerate(("nothing", "nul", "missing")):
            does = {"corpus": "ptb", "version": 0, "file": "ptb/train.txt", "by": 1}
            place = tmp_path / str(number)
            place.mkdir()
            case = Case("corpora", number, 0, {**does, "mutation": mutation})
            assert run(case, place).verdict == "ok"
