"""Lattice files: what is read, and that whatever is wrong gives file, line and reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from datasets.reading.lattice_files import read_lattices
from datasets.reading.lazy import LazyInstances
from harness.commands.bench import main as bench
from harness.contracts.corpus import Corpus, load_corpus
from harness.errors import ConfigError, DataError
from harness.values.instances import Lattice
from harness.values.places import CONF_DIR
from tests.support.lattice_texts import GOOD, changed, write_lattices


def load(root: Path, split: str = "train", **options: Any) -> Corpus:
    return load_corpus("datasets.weibo_lattice", split, root, **options)


def real(root: Path, split: str = "train", **options: Any) -> Corpus:
    if not (root / "lattice").is_dir():
        pytest.skip(f"{root} has no lattice/")
    choice = yaml.safe_load((CONF_DIR / "dataset" / "weibo_lattice.yaml").read_text())
    return load(root, split, **(choice["options"] | options))


def word_lengths(lattice: Lattice) -> list[int]:
    targets = np.arange(lattice.n_states).repeat(np.diff(lattice.arc_start))
    return (targets - lattice.sources)[~lattice.is_character].tolist()


# Reading


def test_a_file_is_read_as_it_is_written(tmp_path: Path) -> None:
    write_lattices(tmp_path)
    corpus = load(tmp_path)
    assert (corpus.instance_kind, corpus.size("classes")) == ("lattice", 18)
    assert (corpus.size("words"), corpus.size("characters")) == (
        34,
        10,
    )  # 0 to 32, 0 to 8, and unknown ones
    first, second = corpus.instances
    assert first.tags.tolist() == [0, 3, 1, 2]
    assert first.arc_start.tolist() == [0, 0, 1, 3, 6]
    assert first.sources.tolist() == [0, 1, 0, 2, 0, 1]
    assert first.tokens.tolist() == [5, 6, 30, 7, 31, 32]
    assert (second.tags.tolist(), second.tokens.tolist()) == ([0, 3], [8])
    assert isinstance(corpus.instances, LazyInstances)


@st.composite
def lattices(draw: st.DrawFn) -> list[list[list[tuple[int, int]]]]:
    """Per lattice and state, the arcs into it: source and id."""
    made = []
    for n in draw(st.lists(st.integers(2, 8), min_size=1, max_size=5)):
        arcs: list[list[tuple[int, int]]] = [[]]
        for state in range(1, n):
            words = sorted(draw(st.sets(st.integers(0, state - 2)))) if state > 1 else []
            arcs.append([(s, draw(st.integers(0, 99))) for s in (state - 1, *words)])
        made.append(arcs)
    return made


@given(lattices(), st.sampled_from(["\n", "\r\n"]))
def test_written_lattices_are_read_back(made: list[list[list[tuple[int, int]]]], end: str) -> None:
    lines = [str(len(made))]
    for arcs in made:
        lines += [str(len(arcs)), " ".join("0" * len(arcs))]
        lines += [" ".join(map(str, (len(into), *sum(into, ())))) for into in arcs]
        lines.append("")
    table = read_lattices(end.join([*lines, ""]).encode(), "a file", 1)
    for index, arcs in enumerate(made):
        lattice = table.lattice(index, table.tokens)
        pairs = zip(lattice.sources.tolist(), lattice.tokens.tolist(), strict=True)
        assert list(pairs) == [pair for into in arcs for pair in into]
        assert np.diff(lattice.arc_start).tolist() == [len(into) for into in arcs]


def test_ids_that_the_training_split_lacks_are_unknown(tmp_path: Path) -> None:
    write_lattices(tmp_path, dev=changed(6, "2 1 1234 0 1234"))
    train, dev = load(tmp_path), load(tmp_path, "dev")
    assert (
        (dev.size("words"), dev.size("characters"))
        == (train.size("words"), train.size("characters"))
        == (34, 10)
    )
    assert dev.instances[0].tokens.tolist() == [5, 9, 33, 7, 31, 32]


def test_ids_may_share_rows_as_in_the_release(tmp_path: Path) -> None:
    write_lattices(tmp_path, dev=changed(6, "2 1 1234 0 1235"))
    dev = load(tmp_path, "dev", vocab_modulo=10)
    assert (dev.size("words"), dev.size("characters")) == (10, 10)
    assert dev.instances[0].tokens.tolist() == [5, 4, 5, 7, 1, 2]
    with pytest.raises(ConfigError, match="vocab_modulo=-1 is not allowed; give 0 for a row"):
        load(tmp_path, vocab_modulo=-1)


# Bad input

MALFORMED = [
    (changed(7, "3 2 7 0 31 3 32"), 7, "an arc into state 3 comes from itself"),
    (changed(6, "2 1 6 3 30"), 6, "an arc into state 2 comes from state 3, further on"),
    (changed(6, "2 2 6 0 30"), 6, "an arc into state 2 comes from itself"),
    (changed(5, "0"), 5, "state 1 has no incoming arc; it needs its character's, from 0"),
    (changed(7, "1 1 32"), 7, "state 3: the arc from state 1 comes first"),
    (changed(7, "2 1 32 2 7"), 7, "be its character, from state 2"),
    (changed(7, "2 2 7 2 8"), 7, "state 3: the arc from state 2 is one more"),
    (changed(4, "1 0 5"), 4, "state 0 has 1 incoming arcs; nothing can come before it"),
    (changed(6, "2 1 6"), 6, "state 2 announces 2 arcs, which are two numbers each, but 2 numbers"),
    (changed(6, "1 1 6 0"), 6, "announces 1 arcs, which are two numbers each, but 3 numbers"),
    (changed(1, "1"), 9, "the first line announces 1 lattices, but more text follows"),
    (changed(1, "3"), 13, "the file ends before lattice 3 of 3; it is truncated"),
    (changed(1, "0"), 1, "announces no lattices"),
    (changed(1, "2 2"), 1, "the line has 2 numbers; it must be the number of lattices"),
    (changed(2, "5"), 8, "lattice 1 of 2 ends after 4 of the 5 states it announces on line 2"),
    (changed(2, "3"), 7, "no blank line ends lattice 1 of 2 after the 3 states"),
    (changed(2, "1"), 2, "lattice 1 of 2 has 1 states; it needs at least 2"),
    (changed(2, "4 4"), 2, "lattice 1 of 2 begins with 2 numbers"),
    (changed(2, ""), 2, "lattice 1 of 2 begins with 0 numbers"),
    (changed(3, "0 3 1"), 3, "3 tags for the 4 states"),
    (changed(3, "0 3 18 2"), 3, "tag 18 is out of range; tags are 0 to 17"),
    (changed(10, "1 3"), 10, "the tag of state 0 is 1; it must be 0"),
    (changed(8, "2"), 8, "no blank line ends lattice 1 of 2 after the 4 states"),
    (GOOD.replace("\n\n2\n", "\n2\n"), 8, "no blank line ends lattice 1"),
    (GOOD.rstrip("\n") + "\n", 12, "the file ends within lattice 2 of 2; it is truncated"),
    ("\n".join(GOOD.split("\n")[:6]), 6, "the file ends within lattice 1 of 2; it is truncated"),
    (GOOD + "\n3\n", 15, "the first line announces 2 lattices, but more text follows them"),
    (GOOD + "the end\n", 14, "'the' is not a whole number"),
    (changed(6, "2 1 6 0 x30"), 6, "'x30' is not a whole number of 0 or more"),
    (changed(6, "2 1 6 0 3.5"), 6, "'3.5' is not a whole number"),
    (changed(6, "2 1 6 0 -3"), 6, "'-3' is not a whole number of 0 or more"),
    (changed(6, "2 1 6 0 4000000000"), 6, "4000000000 is too large"),
    ("\n" + GOOD, 1, "the line has 0 numbers"),
]


@pytest.mark.parametrize(("text", "line", "reason"), MALFORMED)
def test_a_malformed_file_gives_file_line_and_reason(
    tmp_path: Path, text: str, line: int, reason: str
) -> None:
    write_lattices(tmp_path, train=text)
    with pytest.raises(DataError) as caught:
        load(tmp_path, "dev")
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'lattice' / 'train.txt'}:{line}: ")
    assert reason in message
    assert "\n" not in message


@pytest.mark.parametrize("n_bytes", range(len(GOOD)))
def test_a_file_cut_anywhere_is_refused(n_bytes: int) -> None:
    with pytest.raises(DataError, match=r"a file(:\d+:| is empty)"):
        read_lattices(GOOD.encode()[:n_bytes], "a file", 18)


@given(st.integers(0, len(GOOD) - 1), st.sampled_from("0123456789 \n-x\x00é"))
def test_a_wrong_byte_is_an_error_or_another_lattice(at: int, letter: str) -> None:
    content = (GOOD[:at] + letter + GOOD[at + 1 :]).encode()
    try:
        table = read_lattices(content, "a file", 18)
    except DataError:
        return
    found = [table.lattice(index, table.tokens) for index in range(table.n_lattices)]
    assert len(found) == int(content.split()[0])
    assert sum(one.n_arcs for one in found) == len(table.tokens)


def test_missing_empty_and_changed_files_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train\.txt is missing; run `bench-data fetch weibo_latt"):
        load(tmp_path)
    write_lattices(tmp_path, train="")
    with pytest.raises(DataError, match=r"train\.txt is empty; its first line must be the number"):
        load(tmp_path)
    with pytest.raises(DataError, match=r"has sha256 .* expected 00; run `bench-data fetch weibo"):
        load(tmp_path, sha256={"train": "00"})
    with pytest.raises(DataError, match="weibo_lattice needs a data_root"):
        load_corpus("datasets.weibo_lattice", "train", None)


def test_the_console_gives_one_line_and_exit_code_1(tmp_path: Path) -> None:
    write_lattices(tmp_path, train=changed(6, "2 1 6 3 30"))
    command = [sys.executable, "-m", "harness.commands.schedule", "dataset=weibo_lattice"]
    command += ["model=lattice_lstm", "batch_size=1", "dataset.options.sha256=null"]
    done = subprocess.run(
        [*command, f"data_root={tmp_path}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    place = tmp_path / "lattice" / "train.txt"
    expected = f"bench-schedule: {place}:6: an arc into state 2 comes from state 3, further on"
    assert done.stderr.startswith(expected)
    assert done.stderr.count("\n") == 1


def test_a_trial_on_a_malformed_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lattices(tmp_path, train=changed(5, "0"))
    chosen = ["system=reference", "model=lattice_lstm", "dataset=weibo_lattice", "batch_size=1"]
    places = [f"data_root={tmp_path}", f"results_dir={tmp_path}/results"]
    assert bench([*chosen, *places, "hidden_size=4", "dataset.options.sha256=null"]) == 1
    trial, line = capsys.readouterr().err.splitlines()
    assert trial.endswith("refused")
    assert "train.txt:5: state 1 has no incoming arc; it needs its character's, from 0" in line
    assert not list(tmp_path.rglob("*.json"))


# The real files


@pytest.mark.parametrize(
    ("split", "n_lattices", "n_states"),
    [("train", 1147, 50_618), ("dev", 113, 5600), ("test", 316, 14_721)],
)
def test_sizes_of_the_real_files(
    data_root: Path, split: str, n_lattices: int, n_states: int
) -> None:
    corpus = real(data_root, split)
    assert len(corpus.instances) == n_lattices
    assert sum(lattice.n_states for lattice in corpus.instances) == n_states
    assert (corpus.size("words"), corpus.size("characters")) == (10_131, 2_213)
    for lattice in corpus.instances:
        assert lattice.tokens[lattice.is_character].max() < corpus.size("characters")
        assert lattice.tokens.max() < corpus.size("words")


def test_statistics_of_the_real_training_split(data_root: Path) -> None:
    # As counted in the release's file independently of this code.
    instances = real(data_root).instances
    states = np.array([lattice.n_states for lattice in instances])
    assert (states.min(), states.max(), round(states.mean(), 1)) == (3, 211, 44.1)
    into = np.bincount(np.concatenate([np.diff(lattice.arc_start) for lattice in instances]))
    assert into.tolist() == [1147, 25_680, 21_110, 2388, 281, 12]
    lengths = np.bincount([length for lattice in instances for length in word_lengths(lattice)])
    assert lengths.tolist() == [0, 0, 23_045, 3011, 558, 122, 30, 5, 6]
    assert sum(int(lattice.is_character.sum()) for lattice in instances) == 49_471
    assert len(np.unique(np.concatenate([lattice.tags for lattice in instances]))) == 18


def test_words_into_a_state_stand_longest_first(data_root: Path) -> None:
    for lattice in real(data_root, "dev").instances:
        for start, end in zip(lattice.arc_start[1:-1], lattice.arc_start[2:], strict=True):
            assert np.all(np.diff(lattice.sources[start + 1 : end]) > 0)


def test_the_release_has_256_rows(data_root: Path) -> None:
    corpus = real(data_root, vocab_modulo=256)
    assert (corpus.size("words"), corpus.size("characters")) == (256, 256)
    own = real(data_root).instances[0].tokens
    assert corpus.instances[0].tokens.tolist() == (own % 256).tolist()
