"""Unexpected objects at the path of a project file, damage to cache entries, and a full disk."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

FOREIGN = b'{"name": "somebody else\'s", "schema_version": 1}\n'


def _bind(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


def _link_to_a_fifo(path: Path) -> None:
    os.mkfifo(path.with_name("fifo"))
    path.symlink_to("fifo")


def _link_to_foreign(path: Path) -> None:
    path.with_name("foreign").write_bytes(FOREIGN)
    path.symlink_to("foreign")


# By name: the function that creates it, and its description in messages.
SPECIAL: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "folder": (Path.mkdir, "is a directory"),
    "fifo": (os.mkfifo, "is a FIFO"),
    "socket": (_bind, "is a socket"),
    "null": (lambda path: path.symlink_to("/dev/null"), "is a device"),
    "full": (lambda path: path.symlink_to("/dev/full"), "is a device"),
    "link_to_fifo": (_link_to_a_fifo, "is a FIFO"),
}
THERE: Mapping[str, tuple[Callable[[Path], object], str]] = {
    **SPECIAL,
    "foreign": (lambda path: path.write_bytes(FOREIGN), "exists and is not"),
    "link_to_foreign": (_link_to_foreign, "exists and is not"),
}
IMPOSSIBLE = {"circle": (lambda path: path.symlink_to(path.name), "cannot be written")}


def state(path: Path) -> tuple[object, ...]:
    """Return the state of a path, including that of a link's target."""
    own = path.lstat()
    kind = stat.S_IFMT(own.st_mode)
    link = path.readlink() if stat.S_ISLNK(kind) else None
    content = path.read_bytes() if path.is_file() else None
    return own.st_ino, kind, own.st_rdev, link, content


def everything_in(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def fail_on_full_disk(*_: object, **__: object) -> None:
    """Fail as any call of the system does on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


Damage = Callable[[Path, Path], object]  # damages the first entry; the second one is intact


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
    """Replace it by a link to itself."""
    path.unlink()
    path.symlink_to(path)


def _make_link_to_same(path: Path, other: Path) -> None:
    """Replace it by a link to the same content at another path, which another user might own."""
    moved = path.rename(other.parent / f"{path.name}.moved")
    path.symlink_to(moved)


DAMAGES: dict[str, Damage] = {
    "empty": lambda path, _: path.write_bytes(b""),
    "cut off": lambda path, _: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a bit changed": _flip,
    "longer": lambda path, _: path.write_bytes(path.read_bytes() + b"\0"),
    "of another kind": lambda path, _: path.write_bytes(b"(2 a)\n" * 20),
    "another's": lambda path, other: shutil.copyfile(other, path),
    "gone": lambda path, _: path.unlink(),
    "a folder": _make_folder,
    "a pipe": _make_pipe,
    "a link to itself": _make_link,
    "a link elsewhere": _make_link_to_same,
    "open to others": lambda path, _: path.chmod(0o666),
}
