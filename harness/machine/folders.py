"""Folders that go with the process that made them, also where it was killed; the user's cache."""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import BenchError
from harness.machine.caches import NAME, OURS_ALONE, cache_folder, why_not_ours

MEMORY = Path("/dev/shm")  # which Linux keeps in memory: of no disk, and so of no network's
YOUNG_S = 60  # a folder is locked as soon as it is made, but not in the same moment


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder with mode 0700 for as long as the block lasts; deletes what the killed left.

    Raises OSError where none can be made.
    """
    folder, lock = _locked_folder(Path(tempfile.gettempdir()), "run")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@functools.cache
def folder_of_process(name: str) -> Path:
    """A folder for this process alone, with mode 0700, which is deleted at its end.

    What a killed process left is deleted by the next one that asks. Raises OSError where no folder
    can be made.
    """
    parent = cache_folder(f"{name}_of_processes") or Path(tempfile.gettempdir())
    folder, _ = _locked_folder(parent, name)  # as long as the process lives
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def folder_of_files(name: str) -> Path:
    """A folder of this user's cache; where there is none, one of this process alone.

    Raises OSError where neither can be made.
    """
    return cache_folder(name) or folder_of_process(name)


def _locked_folder(parent: Path, name: str) -> tuple[Path, int]:
    """Make a folder; return it and what to close to unlock it."""
    # None but such: locks of this machine lie in a folder beside them, which nobody holds.
    for left in parent.glob(f"{NAME}-{name}-*"):
        _delete_unless_held(left)
    folder = Path(tempfile.mkdtemp(prefix=f"{NAME}-{name}-", dir=parent))
    lock = _lock(folder)
    if lock is None:
        raise BlockingIOError(f"{folder} was just made and another process holds it")
    return folder, lock


def _lock(folder: Path) -> int | None:
    """Lock a folder; returns what to close to unlock it, None where another process has."""
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
    except OSError:  # another process deleted it, or it is no folder
        return
    if held is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def local_folder() -> Path:
    """Where this user's locks of this machine lie, made where it is not there, with mode 0700.

    Raises BenchError where none can be written.
    """
    homes = [MEMORY, Path(tempfile.gettempdir())]
    faults = []
    for home in homes:
        folder = home / f"{NAME}-{os.geteuid()}"
        try:
            folder.mkdir(mode=OURS_ALONE, exist_ok=True)
            fault = why_not_ours(folder.stat())
        except OSError as error:
            fault = str(error.strerror)
        if fault is None:
            return folder
        faults.append(f"{folder}: {fault}")
    raise BenchError(
        f"no folder of this machine alone can be written ({'; '.join(faults)}), and so no turn be"
        " taken on it; mend one of them"
    )
