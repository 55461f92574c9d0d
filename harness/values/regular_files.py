"""Reads files that end: a pipe, a device or a folder in a file's place is told, not waited for."""

from __future__ import annotations

import errno
import stat
from pathlib import Path


def read_regular(path: Path) -> bytes:
    """Return what a regular file holds.

    Raises OSError, with the reason as its strerror, for anything else, and for what cannot be read.
    """
    check_regular(path)
    return path.read_bytes()


def check_regular(path: Path) -> None:
    """Raise OSError, with the reason as its strerror, unless a path names a regular file."""
    try:
        mode = path.stat().st_mode
    except ValueError as error:  # a NUL character, which no path has
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device, no file", str(path))
