"""Directories that are deleted with their process, even a killed one, and the user's cache."""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dynbatch.harness.errors import BenchError
from dynbatch.harness.machine.caches import (
    NAME,
    OURS_ALONE,
    find_ownership_fault,
    make_cache_folder,
)

MEMORY = Path("/dev/shm")  # in memory under Linux, and therefore never on a network file system
KEY_DIGITS = 15  # of a key in the offset of its lock, which has 63 bits
YOUNG_S = 60  # younger directories may not be locked yet: creation and lock are two steps


@contextmanager
def make_temporary_folder() -> Iterator[Path]:
    """Create a directory with mode 0700 for the duration of the block.

    Directories left by killed processes are deleted.
    """
    folder, lock = _make_locked_folder(Path(tempfile.gettempdir()), "run")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@functools.cache
def make_process_folder(name: str) -> Path:
    """Return a directory of this process with mode 0700, which is deleted when it ends.

    Directories left by killed processes are deleted by the next call of another process.
    """
    parent = make_cache_folder(f"{name}_of_processes") or Path(tempfile.gettempdir())
    folder, _ = _make_locked_folder(parent, name)  # locked until the process ends
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def make_user_folder(name: str) -> Path:
    """Return a directory of this user's cache, or else one of this process."""
    return make_cache_folder(name) or make_process_folder(name)


def _make_locked_folder(parent: Path, name: str) -> tuple[Path, int]:
    """Create and lock a directory; return it and the file descriptor that holds the lock."""
    # The pattern must not match the directory of this machine's locks, which is never locked.
    for left in parent.glob(f"{NAME}-{name}-*"):
        _delete_unless_held(left)
    folder = Path(tempfile.mkdtemp(prefix=f"{NAME}-{name}-", dir=parent))
    lock = _lock(folder)
    if lock is None:
        raise BlockingIOError(f"{folder} is new, but another process locks it")
    return folder, lock


def _lock(folder: Path) -> int | None:
    """Lock a directory; return the file descriptor, or None if another process holds the lock."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _delete_unless_held(folder: Path) -> None:
    try:
        facts = folder.lstat()
        if facts.st_uid != os.geteuid() or time.time() - facts.st_mtime < YOUNG_S:
            return
        held = _lock(folder)
    except OSError:  # another process deleted it, or it is not a directory
        return
    if held is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def make_locks_folder() -> Path:
    """Return the directory of this user's locks on this machine, created with mode 0700.

    Raises:
        BenchError: No candidate directory can be written.
    """
    homes = [MEMORY, Path(tempfile.gettempdir())]
    faults = []
    for home in homes:
        folder = home / f"{NAME}-{os.geteuid()}"
        try:
            folder.mkdir(mode=OURS_ALONE, exist_ok=True)
            fault = find_ownership_fault(folder.stat())
        except OSError as error:
            fault = str(error.strerror)
        if fault is None:
            return folder
        faults.append(f"{folder}: {fault}")
    raise BenchError(
        f"no writable local directory for the machine lock ({'; '.join(faults)}); fix one of them"
    )


@contextmanager
def hold_key(key: str) -> Iterator[None]:
    """Let one process of this machine at a time work on the same key, a hash in hexadecimal.

    The lock is one byte of a file, so no file is left for each key; the kernel releases it with
    its process. No process waits if the file cannot be used. Waiting counts in a trial's time
    limit, as computing would.
    """
    with ExitStack() as stack:
        with suppress(BenchError, OSError):
            file = stack.enter_context((make_locks_folder() / "keys").open("ab"))
            fcntl.lockf(file, fcntl.LOCK_EX, 1, int(key[:KEY_DIGITS], 16))
        yield
