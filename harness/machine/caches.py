"""Caches between processes: this user's folders, their entries, and answers about files.

Code is loaded from some of them, so a folder is used only where nobody else can have written to it.
An entry is written whole with a checksum, and read only where it is ours and intact.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import shutil
import stat
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.machine.files import not_regular, replace_regular

NAME = "dynamic-batching-benchmark"
OURS_ALONE = 0o700
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
N_CHECKSUM_BYTES = hashlib.sha256().digest_size
# A link is not followed, and whoever opens a pipe does not wait for its other end.
AS_IT_LIES = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FOLDER = "source"
MOST_ANSWERS = 20_000  # then the older half is forgotten
Answer = Any  # of texts and lists, as JSON has them


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

    Whatever else is in its place is removed, a folder with all that is in it. Raises OSError where
    it cannot be written; nothing is left.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    elif path.is_symlink() or not_regular(path) is not None:
        path.unlink()
    replace_regular(path, content, mode=OURS_ALONE & 0o666)


def _checksum(path: Path, content: bytes) -> bytes:
    """Of the name, too: the entry of another question is no answer to this one."""
    return hashlib.sha256(path.name.encode() + b"\0" + content).digest()


def unpack_kept(entry: Path, folder: Path) -> None:
    """Write the files of an entry below a folder; none where there is no intact one.

    What is there already stays: a library may be loaded, and what changed under it would crash.
    """
    content = kept(entry)
    if content is not None:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            names = [name for name in packed.namelist() if not (folder / name).exists()]
            packed.extractall(folder, names)


def keep_packed(folder: Path, entry: Path) -> None:
    """Keep all files below a folder that have something in them, which locks have not."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.stat().st_size:
                packed.write(path, path.relative_to(folder))
    keep(entry, content.getvalue())


def remembered(function: Callable[[bytes, str], Answer]) -> Callable[[Path, str], Answer]:
    """Make a function of a file's content and a word into one of a file and a word.

    Every trial's process asks what the source of this repository says: parsing all that a trial
    imports takes 0.57 s on one core, looking the answers up 0.07 s. Answers depend on nothing else
    but the code of the function's module: they are kept by a hash of all three.
    """
    by_file: dict[tuple[Path, int, str], Answer] = {}

    @functools.wraps(function)
    def of_file(path: Path, word: str = "") -> Answer:
        key = (path, path.stat().st_mtime_ns, word)
        if key not in by_file:
            by_file[key] = _looked_up(function, path.read_bytes(), word)
        return by_file[key]

    return of_file


def _looked_up(function: Callable[[bytes, str], Answer], content: bytes, word: str) -> Answer:
    folder = answers_folder()
    if folder is None:
        return function(content, word)
    digest = hashlib.sha256(_code_of(function.__code__.co_filename))
    for part in (function.__qualname__.encode(), word.encode(), content):
        digest.update(hashlib.sha256(part).digest())
    place = folder / digest.hexdigest()
    stored = kept(place)
    if stored is not None:
        return json.loads(stored)
    answer = function(content, word)
    keep(place, json.dumps(answer).encode())
    return answer


@functools.cache
def _code_of(file: str) -> bytes:
    return hashlib.sha256(Path(file).read_bytes()).digest()


@functools.cache
def answers_folder() -> Path | None:
    """Where answers are kept; None where no folder can be used."""
    folder = cache_folder(FOLDER)
    if folder is not None:
        forget_the_oldest(folder, MOST_ANSWERS)
    return folder
