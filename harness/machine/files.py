"""Regular files at paths that people name, which may as well lead to a device, a FIFO or a folder.

Opening a FIFO waits for a writer, reading a device may never end, and a file put in the place of a
device replaces it: so what a path leads to is looked at first. Symbolic links are followed.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

LONGEST_NAME_BYTES = 200  # of 255, with which a temporary file beside it can still be named
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def not_regular(path: Path) -> str | None:
    """Say what else than a regular file a path leads to; None for a file, and where nothing is.

    Raises OSError where that cannot be told: in a folder that may not be looked into, or is none.
    """
    try:
        return _kind(_status(path))
    except FileNotFoundError:
        return None


def check_regular(path: Path) -> None:
    """Raise OSError, with the reason as its strerror, unless a path leads to a regular file."""
    _refuse(path, _kind(_status(path)))


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except ValueError as error:  # a NUL character, which no path has
        raise OSError(errno.EINVAL, str(error), str(path)) from error


def _kind(status: os.stat_result) -> str | None:
    return KINDS.get(stat.S_IFMT(status.st_mode))


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file; raises OSError for whatever else is there, or nothing.

    Its strerror says in a few words why.
    """
    check_regular(path)  # before it is opened: a device may act on that
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        _refuse(path, _kind(os.fstat(descriptor)))
        return file.read()


def replace_regular(
    path: Path,
    content: bytes,
    once_complete: Callable[[Path], object] | None = None,
    *,
    mode: int | None = None,
) -> None:
    """Write a file whole or not at all: whoever looks finds the old one, or the new one complete.

    A symbolic link stays, and what it leads to is replaced. The folder has to be there.
    once_complete: called with the path when only the last step is left, which replaces the old one.
    mode: of the file; None for what the process gives its files.

    Raises OSError, with nothing left behind, where that cannot be done or something else is at the
    path.
    """
    path = target_of(path)
    _refuse(path, not_regular(path))
    temporary = _temporary(path, str(os.getpid()))
    try:
        with temporary.open("wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if once_complete is not None:
            once_complete(path)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def drop_leftovers(path: Path) -> None:
    """Delete what a killed writer of this file left half-written."""
    path = target_of(path)
    pattern = _temporary(Path(glob.escape(path.name)), "*").name
    for leftover in path.parent.glob(pattern):
        leftover.unlink(missing_ok=True)


def target_of(path: Path) -> Path:
    """Where a file is written: what a symbolic link leads to, there or not, else the path."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _refuse(path: Path, kind: str | None) -> None:
    if kind is not None:
        number = errno.EISDIR if kind == "a folder" else errno.EINVAL
        raise OSError(number, f"it is {kind}, not a file", str(path))


def _temporary(path: Path, tag: str) -> Path:
    name = path.name
    if len(os.fsencode(name)) > LONGEST_NAME_BYTES:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return path.with_name(f".{name}.{tag}.tmp")


def read_lines(path: Path) -> list[str]:
    """Read the lines of a file of the kernel; none where it cannot be read."""
    text = read_text(path)
    return text.splitlines() if text else []


def read_text(path: Path) -> str | None:
    """Read a file of the kernel; None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
