"""An entry of a cache: written whole with a checksum, read only where it is ours and intact."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from harness.machine.caches import OURS_ALONE, why_not_ours

N_CHECKSUM_BYTES = hashlib.sha256().digest_size
# A link is not followed, and whoever opens a pipe does not wait for its other end.
AS_IT_LIES = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def kept(path: Path) -> bytes | None:
    """Return what `keep` wrote to a file; None for whatever else is there, damaged or not."""
    stored = read_ours(path)
    if stored is None:
        return None
    content = stored[N_CHECKSUM_BYTES:]
    return content if stored[:N_CHECKSUM_BYTES] == _checksum(path, content) else None


def read_ours(path: Path) -> bytes | None:
    """Return what is in a regular file of this user's that nobody else can write; else None.

    Code may be loaded from it.
    """
    try:
        with os.fdopen(os.open(path, AS_IT_LIES), "rb") as file:
            facts = os.fstat(file.fileno())
            if stat.S_ISREG(facts.st_mode) and why_not_ours(facts) is None:
                return file.read()
    except OSError:
        return None
    return None


def keep(path: Path, content: bytes) -> None:
    """Write an entry, whatever was in its place; others may read it at any moment.

    Its folder is made where it is not there. Where the entry cannot be written (a full disk, a
    folder of another user's) nothing is: it is worked out again.
    """
    try:
        path.parent.mkdir(mode=OURS_ALONE, parents=True, exist_ok=True)
        put_in_place(path, _checksum(path, content) + content)
    except OSError:
        return


def put_in_place(path: Path, content: bytes) -> None:
    """Write a file of this user's alone: whoever looks finds the old one, or the whole new one.

    A folder in its place is removed. Raises OSError where it cannot be written; nothing is left.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _checksum(path: Path, content: bytes) -> bytes:
    """Of the name, too: the entry of another question is no answer to this one."""
    return hashlib.sha256(path.name.encode() + b"\0" + content).digest()
