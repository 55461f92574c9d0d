"""Broken files of conf/: one line that names the file and the position, without a traceback."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import dynbatch.harness.commands.data
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.artifacts import Choices, plan_artifact
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.yaml_files import read_mapping
from dynbatch.harness.values.paths import CONF_DIR
from tests.support.refusals import expect_refusal, read_refusal

BRACKET = (b"name: [a\n", ":2: invalid YAML: expected ',' or ']'")
TAB = (b"\tname: x\n", ":1: invalid YAML: found character '\\t' that cannot start any token")
TAG = (b"name: !!python/object:os.x {}\n", ":1: invalid YAML: could not determine a constr")
BYTES = (b"name: \xff\n", "'utf-8' codec can't decode byte 0xff")
SETTINGS = {"system": "null", "model": "tree_fc", "dataset": "complete_trees"}


@pytest.fixture
def conf_dir(tmp_path: Path) -> Path:
    shutil.copytree(CONF_DIR, tmp_path / "conf")
    return tmp_path / "conf"


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("bench.yaml", *BRACKET),
        ("model/tree_fc.yaml", *BRACKET),
        *(("system/null.yaml", *one) for one in (BRACKET, TAB, TAG, BYTES)),
    ],
)
def test_composing_config_names_broken_file_in_error(
    conf_dir: Path, file: str, content: bytes, words: str
) -> None:
    (conf_dir / file).write_bytes(content)
    names_file = [str(conf_dir / file)] if (content, words) != BYTES else []
    with expect_refusal(words, "; fix the file", *names_file):
        Composer(conf_dir).compose_config(SETTINGS)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        BRACKET,
        BYTES,
        (b"- a\n", ": expected keys and values, got a list"),
        (b"", ": expected keys and values, got nothing"),
        (b"name: sst\n", " has no loader; add it"),
    ],
)
def test_broken_file_read_without_hydra_is_named_in_error(
    conf_dir: Path,
    tmp_path: Path,
    content: bytes,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = conf_dir / "dataset" / "sst.yaml"
    path.write_bytes(content)
    monkeypatch.setattr(dynbatch.harness.commands.data, "CONF_DIR", conf_dir)
    assert dynbatch.harness.commands.data.main(["list"]) == 1
    read_refusal(capsys, f"bench-data: {path}", words)
    choices = Choices("smoke", "cpu", 1, tmp_path, tmp_path, conf_dir)
    with pytest.raises(ConfigError, match=r"sst\.yaml"):
        plan_artifact("cavs_fig8d", choices, Composer(conf_dir))


@pytest.mark.parametrize("kind", ["FIFO", "directory"])
@pytest.mark.parametrize("file", ["bench.yaml", "system/null.yaml"])
def test_irregular_file_is_refused_without_waiting(conf_dir: Path, file: str, kind: str) -> None:
    path = conf_dir / file
    path.unlink()
    os.mkfifo(path) if kind == "FIFO" else path.mkdir()
    with expect_refusal(f"{path} cannot be read: it is a {kind}"):
        Composer(conf_dir).compose_config(SETTINGS)


@pytest.mark.parametrize("group", ["system", "experiment"])
def test_duplicate_key_is_reported(conf_dir: Path, group: str) -> None:
    path = min((conf_dir / group).glob("*.yaml"))
    path.write_text(path.read_text(encoding="utf-8") + "\nname: a\nname: b\n")
    with pytest.raises(ConfigError, match=f"{path.name}:.* found duplicate key name"):
        read_mapping(path)
