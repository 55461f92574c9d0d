"""Who is at work on a folder of results: locks that the system takes back with their process.

Their files lie in a folder of the machine alone, named by machine and folder, since what two runs
on one machine disturb is each other's time, whatever cache each was given, and since a network's
folders may know no locks. Snakemake works without its own (profiles/default), so that a killed run
leaves none behind. A node of a cluster measures one trial at a time whatever its folder.
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
from harness.machine.folders import local_folder

LOOK_S = 0.5  # between looks whether a turn is over
MOST_LETTERS = 200  # of the command that holds a turn, where it is named
Say = Callable[[str], object]


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


def _nothing(_: str) -> None:
    return


@contextmanager
def turn(
    results_dir: Path,
    who: str,
    patience_s: float,
    say: Say,
    *,
    alone: bool = True,
    first: Say = _nothing,
) -> Iterator[str]:
    """Be the only one on this machine that measures into a folder, while the block lasts.

    who: the command that others are told of. patience_s: how long to wait for another's turn, after
    a line that says whose it is; infinite is allowed. alone: False shares it with others that do,
    for what is not timed. first: called with the turn's name while nobody else has a part in it.

    Gives the turn's name, the same for each turn of the folder. Raises BenchError where another
    does not end in time.
    """
    words = (str(results_dir), "measured into", ", or choose another results_dir")
    path = _lock_file(results_dir, "turn")
    with _turn_at(path, words, who, patience_s, say, alone, first) as name:
        yield name


@contextmanager
def turn_on_machine(who: str, patience_s: float, say: Say, *, alone: bool = True) -> Iterator[str]:
    """Be the only one of this user that measures on this machine; see `turn`.

    Raises BenchError, too, where no folder of this machine alone can be written.
    """
    words = (platform.node(), "measured on", "")
    path = local_folder() / "machine.turn"
    with _turn_at(path, words, who, patience_s, say, alone, _nothing) as name:
        yield name


@contextmanager
def _turn_at(
    path: Path,
    words: tuple[str, str, str],
    who: str,
    patience_s: float,
    say: Say,
    alone: bool,
    first: Say,
) -> Iterator[str]:
    with _waited_for(path, words, patience_s, say, alone, first) as file:
        name = f"{who[:MOST_LETTERS]} (process {os.getpid()}, since {time.strftime('%H:%M')})"
        file.truncate(0)
        with suppress(OSError):  # the folder is full: the lock holds without a name
            os.pwrite(file.fileno(), name.encode(), 0)
        try:
            yield path.name
        finally:
            if alone or _is_locked_now(file):  # of several, the last
                path.unlink(missing_ok=True)  # before it is free: whoever waits looks for it anew


def _waited_for(
    path: Path,
    words: tuple[str, str, str],
    patience_s: float,
    say: Say,
    alone: bool,
    first: Say,
) -> TextIO:
    """The locked file of a turn; words: what is measured, how, and what else one may do."""
    what, how, way_out = words
    deadline_s = time.monotonic() + patience_s
    has_said = False
    while True:
        file = path.open("a+")
        if _takes_part(file, path, alone, first):
            if _is_there(file, path):
                return file
            file.close()  # of a turn that has just ended
            continue
        file.seek(0)
        holder = file.read() or "another run"
        file.close()
        if time.monotonic() >= deadline_s:
            raise BenchError(
                f"{what} is still {how} by {holder}; wait until that has ended, or end it{way_out}"
            )
        if not has_said:
            say(f"{what} is {how} by {holder}; waiting{_bound_words(patience_s)}")
            has_said = True
        time.sleep(LOOK_S)


def _takes_part(file: TextIO, path: Path, alone: bool, first: Say) -> bool:
    """Take the lock, as a whole or a share of it, unless another has it."""
    if _is_locked_now(file):
        if _is_there(file, path):
            first(path.name)
        # Between whole and share the lock is free for a moment: who took it then is waited for.
        return alone or _is_locked_now(file, fcntl.LOCK_SH)
    return not alone and _is_locked_now(file, fcntl.LOCK_SH)


def _bound_words(patience_s: float) -> str:
    return "" if math.isinf(patience_s) else f" for at most {patience_s:g} s"


def _is_locked_now(file: TextIO, how: int = fcntl.LOCK_EX) -> bool:
    """Take the lock, unless another has it."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
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
