"""A pipeline whose configuration is wrong: one line, exit code 1, nothing measured.

One of each kind, from whatever reads it: tests/planning has all that can be wrong.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.pipelines import HERE, snakemake

pytestmark = [pytest.mark.slow]
BROKEN = "name: [a\n"


def only_line(folder: Path, *config: str) -> str:
    """What Snakemake says behind the line that names its profile."""
    said = {text.partition("=")[0] for text in config}
    others = [text for text in HERE if text.partition("=")[0] not in said]
    done = snakemake(folder, "all", "--dry-run", config=[*others, *config])
    assert done.returncode == 1
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "profile" not in line]
    assert len(lines) == 1, lines
    assert not (folder / "results").exists()
    return lines[0]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("skale=paper", "snakemake: --config skale is unknown, did you mean scale?"),
        ("budget=45", "snakemake: budget=45 is no length of time"),
        ("records=nowhere", "snakemake: records=nowhere does not exist"),
    ],
)
def test_a_wrong_key_or_value(folder: Path, config: str, words: str) -> None:
    assert only_line(folder, config).startswith(words)


def test_a_wrong_artefact(folder: Path) -> None:
    done = snakemake(folder, "draw_small_tabel", "--dry-run")
    assert done.returncode == 1
    said = done.stdout + done.stderr
    words = (
        "snakemake: draw_small_tabel draws nothing, did you mean draw_small_table?; choose one of"
    )
    assert said.splitlines()[-1].startswith(words)
    assert "Exception" not in said


@pytest.mark.parametrize("file", ["bench", "experiment/small_table", "system/null"])
def test_a_broken_file(folder: Path, file: str) -> None:
    path = folder / "conf" / f"{file}.yaml"
    path.write_text(BROKEN)
    line = only_line(folder)
    assert line.startswith("snakemake: ")
    assert f"{path}, line 2 is not YAML: " in line


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    path = folder / "conf/model/tree_lstm.yaml"
    path.unlink()
    os.mkfifo(path)
    assert f"{path} cannot be read: it is a FIFO" in only_line(folder)
