"""Who is at work on a folder of results: locks that the system takes back with their process.

Their files lie in a folder of the machine alone, named by machine and folder, since what two runs
on one machine disturb is each other's time, whatever cache each was given, and since a network's
folders may know no locks. Snakemake works without its own (profiles/default), so that a killed run
leaves none behind.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import platform
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from harness.errors import BenchError
from harness.machine.caches import cache_folder
from harness.machine.local_folder import local_folder

LOOK_S = 0.5  # between looks whether a turn is over
MOST_LETTERS = 200  # of the command that holds a turn, where it is named


def begin_run(results_dir: Path) -> TextIO:
    """Say that a run goes on here, until the file that is returned is closed, or the process ends.

    Several may.
    """
    results_dir.mkdir(parents=True, exist_ok=True)
    file = _lock_file(results_dir, "run").open("w")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


@contextmanager
def while_none_runs(results_dir: Path) -> Iterator[bool]:
    """Whether none goes on here; none begins before the block ends, where that is so."""
    with _lock_file(results_dir, "run").open("w") as file:
        yield _is_locked_now(file)


@contextmanager
def turn(
    results_dir: Path, who: str, patience_s: float, say: Callable[[str], None]
) -> Iterator[str]:
    """Be the only one on this machine that measures into a folder, while the block lasts.

    who: the command that others are told of. patience_s: how long to wait for another's turn, after
    a line that says whose it is; infinite is allowed.

    Gives the turn's name, the same for each turn of the folder. Raises BenchError where another
    does not end in time.
    """
    path = _lock_file(results_dir, "turn")
    with _waited_for(path, results_dir, patience_s, say) as file:
        name = f"{who[:MOST_LETTERS]} (process {os.getpid()}, since {time.strftime('%H:%M')})"
        file.truncate(0)
        with suppress(OSError):  # the folder is full: the lock holds without a name
            os.pwrite(file.fileno(), name.encode(), 0)
        try:
            yield path.name
        finally:
            path.unlink(missing_ok=True)  # before it is free: whoever waits looks for it anew


def _waited_for(
    path: Path, results_dir: Path, patience_s: float, say: Callable[[str], None]
) -> TextIO:
    deadline_s = time.monotonic() + patience_s
    has_said = False
    while True:
        file = path.open("a+")
        if _is_locked_now(file):
            if _is_there(file, path):
                return file
            file.close()  # of a turn that has just ended
            continue
        file.seek(0)
        holder = file.read() or "another run"
        file.close()
        if time.monotonic() >= deadline_s:
            raise BenchError(
                f"{results_dir} is still measured into by {holder}; wait until that has ended, end"
                " it, or choose another results_dir"
            )
        if not has_said:
            say(f"{results_dir} is measured into by {holder}; waiting{_bound_words(patience_s)}")
            has_said = True
        time.sleep(LOOK_S)


def _bound_words(patience_s: float) -> str:
    return "" if math.isinf(patience_s) else f" for at most {patience_s:g} s"


def _is_locked_now(file: TextIO) -> bool:
    """Take the lock, unless another has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_there(file: TextIO, path: Path) -> bool:
    """Whether a file that was opened is still the one of that name."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _lock_file(results_dir: Path, what: str) -> Path:
    """Where a lock of a folder lies; see _lock_folder."""
    place = str(results_dir.resolve())
    name = f"{platform.node()}-{hashlib.sha256(place.encode()).hexdigest()[:16]}.{what}"
    return _lock_folder(results_dir) / re.sub(r"[^\w.-]", "_", name)


def _lock_folder(results_dir: Path) -> Path:
    """The folder of this machine alone; without one the user's cache, or the results' own."""
    try:
        return local_folder()
    except BenchError:
        return cache_folder("locks") or results_dir
