"""Locks of results directories and of the machine, which the kernel releases with their process.

The lock files are in a local directory of the machine, because network file systems may not support
locks, and because two runs on one machine disturb each other whatever their cache directories.
Their names have the machine and a hash of the results directory. Snakemake's own lock is disabled
(workflow/profiles/default), so that a killed run leaves no lock. A cluster node measures one block
at a time, independent of the results directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TextIO

from dynbatch.harness.errors import BenchError
from dynbatch.harness.machine.caches import make_cache_folder
from dynbatch.harness.machine.facts import find_used_gpu
from dynbatch.harness.machine.folders import make_locks_folder

POLL_S = 0.5  # interval between attempts to take a lock
MAX_HOLDER_CHARS = 200  # characters of the holder's command in messages
Notify = Callable[[str], object]


def begin_run(results_dir: Path) -> TextIO:
    """Mark a run into a directory as active, until the returned file is closed.

    The end of the process closes the file, too. Several runs may be active.
    """
    results_dir.mkdir(parents=True, exist_ok=True)
    file = _build_lock_path(results_dir, "run").open("w")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


@contextmanager
def block_runs(results_dir: Path) -> Iterator[bool]:
    """Yield whether no run into the directory is active; if so, none starts within the block."""
    with _build_lock_path(results_dir, "run").open("w") as file:
        yield _try_flock(file)


def hold_results_dir(
    results_dir: Path,
    holder: str,
    patience_s: float,
    notify: Notify,
    *,
    alone: bool = True,
    first: Notify = lambda _: None,
) -> AbstractContextManager[str]:
    """Hold this machine's lock of a results directory within the block.

    Args:
        holder: command that messages to waiting processes name.
        patience_s: seconds to wait for the lock, may be infinite.
        notify: called with a line that names the holder, before waiting.
        alone: False takes a shared lock, for work that is not timed.
        first: called with the lock's name if no other process holds the lock.

    Returns:
        The lock, which yields its name: the same for all locks of the directory. It raises
        BenchError if the holder does not release it in time.
    """
    message_parts = (str(results_dir), "into", ", or choose another results_dir")
    path = _build_lock_path(results_dir, "turn")
    return _hold_lock(path, message_parts, holder, patience_s, notify, alone=alone, first=first)


def hold_machine(
    holder: str, patience_s: float, notify: Notify, *, alone: bool = True
) -> AbstractContextManager[str]:
    """Hold this user's lock of the machine within the block; see `hold_results_dir`."""
    message_parts = (platform.node(), "on", "")
    path = make_locks_folder() / "machine.turn"
    return _hold_lock(path, message_parts, holder, patience_s, notify, alone=alone)


def hold_used_gpu(
    devices: Iterable[str], results_dir: Path, holder: str, notify: Notify
) -> AbstractContextManager[object]:
    """Return a lock of the GPU that CUDA programs use, if one of the devices is "cuda"."""
    gpu = find_used_gpu() if "cuda" in devices else None  # its model and UUID
    if gpu is None:
        return nullcontext()
    name = re.sub(r"[^\w.-]", "_", f"{platform.node()}-{gpu}.turn")
    path = _find_lock_folder(results_dir) / name
    return _hold_lock(path, (gpu, "on", ""), holder, math.inf, notify)


@contextmanager
def _hold_lock(
    path: Path,
    message_parts: tuple[str, str, str],
    holder: str,
    patience_s: float,
    notify: Notify,
    *,
    alone: bool = True,
    first: Notify = lambda _: None,
) -> Iterator[str]:
    with _wait_for_lock(path, message_parts, patience_s, notify, alone, first) as file:
        process = f"process {os.getpid()}, since {time.strftime('%H:%M')}"
        name = f"{holder[:MAX_HOLDER_CHARS]} ({process})"
        file.truncate(0)
        with suppress(OSError):  # the disk is full: the lock works without its holder's name
            os.pwrite(file.fileno(), name.encode(), 0)
        try:
            yield path.name
        finally:
            if alone or _try_flock(file):  # the last holder of a shared lock
                path.unlink(missing_ok=True)  # before the release: waiting processes reopen it


def _wait_for_lock(
    path: Path,
    message_parts: tuple[str, str, str],
    patience_s: float,
    notify: Notify,
    alone: bool,
    first: Notify,
) -> TextIO:
    """Wait for a lock and return its file.

    Args:
        message_parts: target, preposition and further remedy for messages.
    """
    target, preposition, way_out = message_parts
    deadline_s = time.monotonic() + patience_s
    is_announced = False
    while True:
        file = path.open("a+")
        if _try_lock(file, path, alone, first):
            if _is_there(file, path):
                return file
            file.close()  # its last holder has just deleted it
            continue
        file.seek(0)
        holder = file.read() or "another run"
        file.close()
        if time.monotonic() >= deadline_s:
            raise BenchError(
                f"{holder} is still measuring {preposition} {target}; wait for its end or stop it"
                f"{way_out}"
            )
        if not is_announced:
            bound = "" if math.isinf(patience_s) else f" for at most {patience_s:g} s"
            notify(f"{holder} is measuring {preposition} {target}; waiting{bound}")
            is_announced = True
        time.sleep(POLL_S)


def _try_lock(file: TextIO, path: Path, alone: bool, first: Notify) -> bool:
    """Take the exclusive or the shared lock if it is free; return whether it was."""
    if _try_flock(file):
        if _is_there(file, path):
            first(path.name)
        # The lock is free for a moment while it changes from exclusive to shared.
        return alone or _try_flock(file, fcntl.LOCK_SH)
    return not alone and _try_flock(file, fcntl.LOCK_SH)


def _try_flock(file: TextIO, how: int = fcntl.LOCK_EX) -> bool:
    """Take the lock if it is free; return whether it was."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_there(file: TextIO, path: Path) -> bool:
    """Return whether an open file is still the one at its path."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _build_lock_path(results_dir: Path, what: str) -> Path:
    """Return the path of a lock of a results directory; see _find_lock_folder."""
    resolved = str(results_dir.resolve())
    name = f"{platform.node()}-{hashlib.sha256(os.fsencode(resolved)).hexdigest()[:16]}.{what}"
    return _find_lock_folder(results_dir) / re.sub(r"[^\w.-]", "_", name)


def _find_lock_folder(results_dir: Path) -> Path:
    """Return the machine's local directory, else the user's cache, else the results directory."""
    try:
        return make_locks_folder()
    except BenchError:
        return make_cache_folder("locks") or results_dir
