"""Regular files at paths from users, which may also name a device, a FIFO or a directory.

Opening a FIFO waits for a writer, reading a device may never end, and writing atomically replaces a
device by a file. Therefore the kind of file is checked first. Symbolic links are followed.
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

LONGEST_NAME_BYTES = 200  # of 255, which leaves enough for the name of a temporary file
KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def find_irregular_kind(path: Path) -> str | None:
    """Return the kind of file at a path; None for a regular file or a missing one.

    Raises:
        OSError: The kind is unknown, for example because the directory cannot be read.
    """
    try:
        return _name_kind(_read_status(path))
    except FileNotFoundError:
        return None


def check_regular(path: Path) -> None:
    """Check that a path leads to a regular file."""
    _refuse(path, _name_kind(_read_status(path)))


def _read_status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except ValueError as error:  # a NUL character, which is invalid in paths
        raise OSError(errno.EINVAL, str(error), str(path)) from error


def _name_kind(status: os.stat_result) -> str | None:
    return KINDS.get(stat.S_IFMT(status.st_mode))


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: The file is missing or not regular; its strerror has the reason.
    """
    check_regular(path)  # before opening it, which may affect a device
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        _refuse(path, _name_kind(os.fstat(descriptor)))
        return file.read()


def replace_regular(
    path: Path,
    content: bytes,
    once_complete: Callable[[Path], object] | None = None,
    *,
    mode: int | None = None,
) -> None:
    """Write a file atomically: readers see either the old or the complete new content.

    The target of a symbolic link is replaced. The directory must exist.

    Args:
        once_complete: Called with the path when the new file is complete, before it replaces the
            old one.
        mode: Mode of the file; None for the default of the process.

    Raises:
        OSError: The file cannot be written, or something else is at the path; no partial file is
            left.
    """
    path = resolve_target(path)
    _refuse(path, find_irregular_kind(path))
    temporary = _make_temporary_path(path, str(os.getpid()))
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


def read_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return what identifies a file's content; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def drop_leftovers(path: Path) -> None:
    """Delete the temporary files of this file that killed writers left."""
    path = resolve_target(path)
    pattern = _make_temporary_path(Path(glob.escape(path.name)), "*").name
    for leftover in path.parent.glob(pattern):
        leftover.unlink(missing_ok=True)


def resolve_target(path: Path) -> Path:
    """Return the path to write to: a symbolic link's target, which may not exist, or itself."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _refuse(path: Path, kind: str | None) -> None:
    if kind is not None:
        number = errno.EISDIR if kind == "a directory" else errno.EINVAL
        raise OSError(number, f"it is {kind}, not a file", str(path))


def _make_temporary_path(path: Path, tag: str) -> Path:
    name = path.name
    if len(os.fsencode(name)) > LONGEST_NAME_BYTES:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return path.with_name(f".{name}.{tag}.tmp")


def read_lines(path: Path) -> list[str]:
    """Read the lines of a kernel file; empty if it cannot be read."""
    text = read_text(path)
    return text.splitlines() if text else []


def read_text(path: Path) -> str | None:
    """Read a kernel file; None if it cannot be read. Names of processes may be of any bytes."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
