"""Folders in which this project keeps between processes what it can work out again.

Code is loaded from some of them, so a folder is used only where nobody else can have written to it.
"""

from __future__ import annotations

import functools
import os
import stat
import sys
from pathlib import Path

NAME = "dynamic-batching-benchmark"
OURS_ALONE = 0o700
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_folder(name: str) -> Path | None:
    """A folder of this user's cache, made where it is not there, with mode 0700.

    None where none can be written, or where it is another user's or was open to others: one line
    on standard error tells of the latter two, and the process goes on without a cache.
    """
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        for folder in (home / NAME, home / NAME / name):
            if not folder.is_dir():
                home.mkdir(parents=True, exist_ok=True)
                folder.mkdir(mode=OURS_ALONE, exist_ok=True)
            fault = why_not_ours(folder.stat())
            if fault is not None:
                _say_once(f"{folder} {fault}: caches in it are not used; remove it")
                return None
            folder.chmod(OURS_ALONE)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    return folder if os.access(folder, os.W_OK) else None


def why_not_ours(facts: os.stat_result) -> str | None:
    """Say why a file or a folder may hold what another user wrote, None where it cannot."""
    if facts.st_uid != os.geteuid():
        return f"belongs to another user (number {facts.st_uid})"
    if facts.st_mode & OTHERS_MAY_WRITE:
        return f"may be written by others (mode {stat.S_IMODE(facts.st_mode):o})"
    return None


@functools.cache
def _say_once(line: str) -> None:
    print(line, file=sys.stderr)


def forget_the_oldest(folder: Path, n_most: int) -> None:
    """Delete the older half of a folder's files where there are more than `n_most`.

    Nothing else bounds a cache: answers about files that were edited since are never asked for.
    """
    try:
        with os.scandir(folder) as found:
            files = [(entry.stat().st_mtime_ns, entry.path) for entry in found if entry.is_file()]
        for _, path in sorted(files)[: -n_most // 2] if len(files) > n_most else ():
            Path(path).unlink(missing_ok=True)
    except OSError:  # of two processes that do it the other was faster, or it is not ours to do
        return
