"""What may be at a path and is no file of ours: how each is made, and whether it is untouched."""

from __future__ import annotations

import os
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


# By name: what makes it, and the word that says what it is.
SPECIAL: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "folder": (Path.mkdir, "is a folder"),
    "fifo": (os.mkfifo, "is a FIFO"),
    "socket": (_bind, "is a socket"),
    "null": (lambda path: path.symlink_to("/dev/null"), "is a device"),
    "full": (lambda path: path.symlink_to("/dev/full"), "is a device"),
    "link_to_fifo": (_link_to_a_fifo, "is a FIFO"),
}
THERE: Mapping[str, tuple[Callable[[Path], object], str]] = {
    **SPECIAL,
    "foreign": (lambda path: path.write_bytes(FOREIGN), "is there and is not"),
    "link_to_foreign": (_link_to_foreign, "is there and is not"),
}
IMPOSSIBLE: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "circle": (lambda path: path.symlink_to(path.name), "cannot be written"),
}


def state(path: Path) -> tuple[object, ...]:
    """What is at a path, with what it leads to."""
    own = path.lstat()
    kind = stat.S_IFMT(own.st_mode)
    link = path.readlink() if stat.S_ISLNK(kind) else None
    content = path.read_bytes() if path.is_file() else None
    return own.st_ino, kind, own.st_rdev, link, content


def everything_in(folder: Path) -> set[Path]:
    """All paths below a folder."""
    return set(folder.rglob("*"))
