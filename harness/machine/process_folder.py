"""Folders for libraries that must have files: one of a process alone, or the user's cache."""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import shutil
import tempfile
import time
from pathlib import Path

from harness.machine.caches import NAME, cache_folder

YOUNG_S = 60  # a folder is locked as soon as it is made, but not in the same moment


@functools.cache
def folder_of_process(name: str) -> Path:
    """A folder for this process alone, with mode 0700, which is deleted at its end.

    What a killed process left is deleted by the next one that asks. Raises OSError where no folder
    can be made.
    """
    parent = cache_folder(f"{name}_of_processes")
    for left in parent.iterdir() if parent else ():
        _delete_unless_held(left)
    folder = Path(tempfile.mkdtemp(prefix=f"{NAME}-{name}-", dir=parent))
    _lock(folder)  # as long as the process lives
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def folder_of_files(name: str) -> Path:
    """A folder of this user's cache; where there is none, one of this process alone.

    Raises OSError where neither can be made.
    """
    return cache_folder(name) or folder_of_process(name)


def _lock(folder: Path) -> int | None:
    """Lock a folder; returns what to close to unlock it, None where another process has."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _delete_unless_held(folder: Path) -> None:
    try:
        if time.time() - folder.stat().st_mtime < YOUNG_S:
            return
        held = _lock(folder)
    except OSError:  # another process deleted it
        return
    if held is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)
