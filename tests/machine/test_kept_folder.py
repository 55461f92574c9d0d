"""Folders that are kept as one entry: all files, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.machine.kept_folder import keep_packed, unpack_kept
from tests.support.damages import DAMAGES

FILES = {"a.so": b"\0\1" * 500, "deep/er/b.py": b"x = 1"}


def fill(folder: Path) -> None:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def files_of(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_files_are_found_again_but_no_locks(tmp_path: Path) -> None:
    fill(tmp_path / "filled")
    (tmp_path / "filled" / "a.lock").touch()
    keep_packed(tmp_path / "filled", tmp_path / "entry")
    unpack_kept(tmp_path / "entry", tmp_path / "new")
    assert files_of(tmp_path / "new") == FILES


@pytest.mark.parametrize("damage", DAMAGES)
def test_of_a_damaged_entry_no_file_is_taken(tmp_path: Path, damage: str) -> None:
    fill(tmp_path / "filled")
    keep_packed(tmp_path / "filled", tmp_path / "entry")
    keep_packed(tmp_path, tmp_path / "other")
    DAMAGES[damage](tmp_path / "entry", tmp_path / "other")
    (tmp_path / "new").mkdir()
    unpack_kept(tmp_path / "entry", tmp_path / "new")
    assert files_of(tmp_path / "new") == {}
    keep_packed(tmp_path / "filled", tmp_path / "entry")
    unpack_kept(tmp_path / "entry", tmp_path / "new")
    assert files_of(tmp_path / "new") == FILES


def test_what_is_there_already_stays(tmp_path: Path) -> None:
    fill(tmp_path / "filled")
    keep_packed(tmp_path / "filled", tmp_path / "entry")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a.so").write_bytes(b"loaded")
    unpack_kept(tmp_path / "entry", tmp_path / "new")
    assert files_of(tmp_path / "new") == FILES | {"a.so": b"loaded"}
