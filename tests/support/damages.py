"""What can have happened to an entry of a cache since it was written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path, Path], None]  # of this entry; the other is an intact one of its cache


def _empty(path: Path, _: Path) -> None:
    path.write_bytes(b"")


def _lengthen(path: Path, _: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def _write_text(path: Path, _: Path) -> None:
    path.write_bytes(b"(2 a)\n" * 20)


def _cut(path: Path, _: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path, _: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 3 // 4] ^= 1
    path.write_bytes(content)


def _make_folder(path: Path, _: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "file").write_bytes(b"in the way")


def _make_pipe(path: Path, _: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _make_link(path: Path, _: Path) -> None:
    """To itself."""
    path.unlink()
    path.symlink_to(path)


def _make_link_to_same(path: Path, other: Path) -> None:
    """To the very content, but where it may be another user's."""
    moved = path.rename(other.parent / f"{path.name}.moved")
    path.symlink_to(moved)


def _swap(path: Path, other: Path) -> None:
    shutil.copyfile(other, path)


DAMAGES: dict[str, Damage] = {
    "empty": _empty,
    "cut off": _cut,
    "a bit changed": _flip,
    "longer": _lengthen,
    "of another kind": _write_text,
    "another's": _swap,
    "gone": lambda path, _: path.unlink(),
    "a folder": _make_folder,
    "a pipe": _make_pipe,
    "a link to itself": _make_link,
    "a link elsewhere": _make_link_to_same,
    "open to others": lambda path, _: path.chmod(0o666),
}
