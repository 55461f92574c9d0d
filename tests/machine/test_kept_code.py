"""Bytecode that is kept is that of the text as it is, and of nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.machine import kept_code
from harness.machine.kept_code import KeptCode
from harness.values.places import ROOT


@pytest.fixture
def compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A cache of its own; the list tells which modules were compiled."""
    found: list[str] = []
    compile_it = KeptCode.source_to_code

    def noted(self: KeptCode, data: bytes, path: str) -> object:
        found.append(Path(path).stem)
        return compile_it(self, data, path)

    monkeypatch.setattr(KeptCode, "source_to_code", noted)
    folder = tmp_path / "bytecode"
    folder.mkdir()
    monkeypatch.setattr(kept_code, "_folder", lambda: folder)
    return found


def value_in(path: Path) -> object:
    found: dict[str, object] = {}
    exec(KeptCode("some", str(path)).get_code("some"), found)
    return found["VALUE"]


def test_a_text_is_compiled_once_and_an_edit_again(tmp_path: Path, compilations: list[str]) -> None:
    path = tmp_path / "some.py"
    path.write_text("VALUE = 1\n", encoding="utf-8")
    facts = path.stat()
    assert [value_in(path), value_in(path)] == [1, 1]
    assert compilations == ["some"]
    path.write_text("VALUE = 2\n", encoding="utf-8")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # as long, and as old
    assert value_in(path) == 2
    assert compilations == ["some", "some"]


def test_equal_texts_elsewhere_tell_their_own_file(tmp_path: Path, compilations: list[str]) -> None:
    for name in ("one", "two"):
        path = tmp_path / f"{name}.py"
        path.write_text("VALUE = (lambda: 0).__code__.co_filename\n", encoding="utf-8")
        assert value_in(path) == str(path)
    assert compilations == ["one", "two"]


def test_what_is_damaged_is_compiled_anew(tmp_path: Path, compilations: list[str]) -> None:
    path = tmp_path / "some.py"
    path.write_text("VALUE = 1\n", encoding="utf-8")
    assert value_in(path) == 1
    (entry,) = (tmp_path / "bytecode").iterdir()
    stored = bytearray(entry.read_bytes())
    stored[-3] ^= 1
    entry.write_bytes(stored)
    assert value_in(path) == 1
    assert compilations == ["some", "some"]


LOADERS = """
from harness.machine.kept_code import keep_code_of
from harness.values.places import ROOT
keep_code_of(ROOT)
import json, numpy, harness.errors, harness.values.graph
for module in (json, numpy, harness.errors, harness.values.graph):
    print(module.__name__, type(module.__loader__).__name__)
"""


@pytest.mark.parametrize("writes", [True, False])
def test_only_ours_and_only_where_python_writes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "" if writes else "1")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "pycache"))
    command = [sys.executable, "-c", LOADERS]
    done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    loaders = dict(line.split() for line in done.stdout.splitlines())
    usual = "SourceFileLoader"
    ours = usual if writes else "KeptCode"
    assert loaders == {
        **{"json": usual, "numpy": usual},
        **{"harness.errors": ours, "harness.values.graph": ours},
    }
