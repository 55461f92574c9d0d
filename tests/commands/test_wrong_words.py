"""Wrong words for the small commands: one line, exit code 1, nothing written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.commands import collect, doctor, schedule

TOO_LONG = "/x" * 3000
TINY = ("model=tree_lstm", "dataset=sst_synthetic", "batch_size=2", "policy=depth")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a command is called in."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").mkdir()
    return tmp_path


def only_line(said: pytest.CaptureResult[str]) -> str:
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
    return said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "results/raw cannot be read (No such file or directory); name a record"),
        (["--nope"], "see `bench-collect --help`"),
        ([""], "PLACE is empty"),
        (["--out", ""], "--out is empty"),
        (["--pack", ""], "--pack is empty"),
        (["empty", "--unpack", ""], "--unpack is empty"),
        (["--out"], "expected one argument"),
        ([TOO_LONG], "at most 3500 bytes"),
        (["empty", "--out", TOO_LONG], "at most 3500 bytes"),
        (["a\0b"], "has a NUL character"),
        (["pipe"], "pipe cannot be read (it is a FIFO, not a file)"),
        (["/dev/zero"], "/dev/zero cannot be read"),
    ],
)
def test_collect(
    arguments: list[str], words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(here.rglob("*"))
    assert collect.main(arguments) == 1
    assert words in only_line(capsys.readouterr())
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["=5"], "=5 has no key"),
        ([""], "is not understood; give key=value"),
        (["experiment=null"], "counts have no experiment; leave it out"),
        (["system=vertex"], "counts have no system; leave it out"),
        (["rounds=1e11"], "counts have no rounds"),
        (["model=null"], "model=null names no model; choose one of"),
        (["batch_size='2'"], "batch_size='2' is not allowed; give a whole number"),
        (["force=yes"], "force=yes is not allowed; give true or false"),
        (["force=5"], "force=5 is not allowed; give true or false"),
        (["offset=1.5"], "offset=1.5 is not allowed"),
        ([f"offset={10**30}"], "with at most 9 digits"),
        (["n_following=999999999"], "n_following=999999999 is not allowed"),
        (["granularity="], "granularity is empty"),
        (["out="], "out is empty"),
        (["records="], "records is empty"),
        (["save_policy="], "save_policy is empty"),
        ([f"records={TOO_LONG}"], "at most 3500 bytes"),
        (["learning.file="], "learning.file is empty"),
        (["learning.file=pipe", "policy=fsm_sort"], "it is a FIFO, not a file"),
        (["~batch_size=1"], "every trial needs batch_size"),
        (["timing.min_seconds=.nan"], "timing.min_seconds=nan is not allowed"),
    ],
)
def test_schedule(
    arguments: list[str], words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(here.rglob("*"))
    said = {text.partition("=")[0] for text in arguments}
    others = [text for text in TINY if text.partition("=")[0] not in said]
    assert schedule.main([*others, *arguments]) == 1
    assert words in only_line(capsys.readouterr())
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("arguments", [["--nope"], [""], ["x"]])
def test_doctor(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(arguments) == 1
    assert "see `bench-doctor --help`" in only_line(capsys.readouterr())
