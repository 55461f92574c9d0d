"""Caches shared by processes: this user's directories, their entries, and facts about files.

Code is loaded from some of them, so a directory is used only if no other user can have written to
it. An entry is written atomically with a checksum, and read only if it is intact and belongs to
this user.
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

from dynbatch.harness.machine.files import find_irregular_kind, replace_regular

NAME = "dynamic-batching-benchmark"
OURS_ALONE = 0o700
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
N_CHECKSUM_BYTES = hashlib.sha256().digest_size
# Do not follow a link, and do not block on a FIFO.
AS_IT_LIES = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FOLDER = "source"
MAX_ANSWERS = 20_000  # beyond this number the older half is deleted
Answer = Any  # a value of strings and lists that JSON can represent


def make_cache_folder(name: str) -> Path | None:
    """Return a directory of this user's cache, created with mode 0700 if missing.

    Returns None if it cannot be written, belongs to another user or could be written by others. The
    last two are reported in one line on standard error, and the process continues without a cache.
    """
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        for folder in (home / NAME, home / NAME / name):
            if not folder.is_dir():
                home.mkdir(parents=True, exist_ok=True)
                folder.mkdir(mode=OURS_ALONE, exist_ok=True)
            fault = find_ownership_fault(folder.stat())
            if fault is not None:
                _print_once(f"{folder} {fault}, so its caches are not used; remove it")
                return None
            folder.chmod(OURS_ALONE)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home directory
        return None
    return folder if os.access(folder, os.W_OK) else None


def find_ownership_fault(facts: os.stat_result) -> str | None:
    """Return why a file or directory may have content of another user, or None."""
    if facts.st_uid != os.geteuid():
        return f"belongs to another user (uid {facts.st_uid})"
    if facts.st_mode & OTHERS_MAY_WRITE:
        return f"is writable by other users (mode {stat.S_IMODE(facts.st_mode):o})"
    return None


@functools.cache
def _print_once(line: str) -> None:
    print(line, file=sys.stderr)


def delete_oldest(folder: Path, n_most: int) -> None:
    """Delete the older half of a directory's files if there are more than `n_most`.

    Nothing else limits a cache, and entries for older versions of files are never used again.
    """
    try:
        with os.scandir(folder) as entries:
            files = [(entry.stat().st_mtime_ns, entry.path) for entry in entries if entry.is_file()]
        for _, path in sorted(files)[: -n_most // 2] if len(files) > n_most else ():
            Path(path).unlink(missing_ok=True)
    except OSError:  # another process deleted the files first, or this user may not
        return


def read_cached(path: Path) -> bytes | None:
    """Return the content that `write_cached` wrote to a file; None if it is missing or damaged."""
    stored = read_trusted_file(path)
    if stored is None:
        return None
    content = stored[N_CHECKSUM_BYTES:]
    return content if stored[:N_CHECKSUM_BYTES] == _compute_checksum(path, content) else None


def read_trusted_file(path: Path) -> bytes | None:
    """Return the content of a regular file that only this user can write, or None.

    Code may be loaded from it.
    """
    try:
        with os.fdopen(os.open(path, AS_IT_LIES), "rb") as file:
            facts = os.fstat(file.fileno())
            if stat.S_ISREG(facts.st_mode) and find_ownership_fault(facts) is None:
                return file.read()
    except OSError:
        return None
    return None


def write_cached(path: Path, content: bytes) -> None:
    """Write an entry, replacing an existing one; other processes may read it at any time.

    A missing directory is created. If the entry cannot be written (a full disk, a directory of
    another user), nothing is written and the content is computed again next time.
    """
    try:
        path.parent.mkdir(mode=OURS_ALONE, parents=True, exist_ok=True)
        write_private_file(path, _compute_checksum(path, content) + content)
    except OSError:
        return


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file that only this user can access, atomically.

    Anything else at the path is removed, including a directory with its content.

    Raises:
        OSError: The file cannot be written; no partial file is left.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    elif path.is_symlink() or find_irregular_kind(path) is not None:
        path.unlink()
    replace_regular(path, content, mode=OURS_ALONE & 0o666)


def _compute_checksum(path: Path, content: bytes) -> bytes:
    """Hash content and file name, so that an entry is invalid under another name."""
    return hashlib.sha256(path.name.encode() + b"\0" + content).digest()


def unpack_kept(entry: Path, folder: Path) -> None:
    """Unpack the files of an entry into a directory, if the entry is intact.

    Existing files stay unchanged. Others appear as a whole: a process that has loaded a library
    would crash if the file was written again in place.
    """
    content = read_cached(entry)
    if content is not None:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            for name in packed.namelist():
                if not (folder / name).exists():
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    write_private_file(folder / name, packed.read(name))


def keep_packed(folder: Path, entry: Path) -> None:
    """Store all files in a directory tree as an entry, except empty ones such as lock files."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.stat().st_size:
                packed.write(path, path.relative_to(folder))
    write_cached(entry, content.getvalue())


def cache_on_disk(function: Callable[[bytes, str], Answer]) -> Callable[[Path, str], Answer]:
    """Convert a function of a file's content and a string to a cached function of its path.

    Every trial's process needs facts about this repository's source code: parsing everything that a
    trial imports takes 0.57 s on one core, and looking the results up takes 0.07 s. Results depend
    only on content, string and the code of the function's module; a hash of these is the key.
    """
    by_file: dict[tuple[Path, int, str], Answer] = {}

    @functools.wraps(function)
    def call_cached(path: Path, word: str = "") -> Answer:
        key = (path, path.stat().st_mtime_ns, word)
        if key not in by_file:
            by_file[key] = _load_or_compute(function, path.read_bytes(), word)
        return by_file[key]

    return call_cached


def _load_or_compute(function: Callable[[bytes, str], Answer], content: bytes, word: str) -> Answer:
    folder = make_answers_folder()
    if folder is None:
        return function(content, word)
    digest = hashlib.sha256(_hash_code(function.__code__.co_filename))
    for part in (function.__qualname__.encode(), word.encode(), content):
        digest.update(hashlib.sha256(part).digest())
    path = folder / digest.hexdigest()
    stored = read_cached(path)
    if stored is not None:
        return json.loads(stored)
    answer = function(content, word)
    _limit_answers(folder)
    write_cached(path, json.dumps(answer).encode())
    return answer


@functools.cache
def _hash_code(file: str) -> bytes:
    return hashlib.sha256(Path(file).read_bytes()).digest()


@functools.cache
def make_answers_folder() -> Path | None:
    """Return the directory of cached results about files, or None if none can be used."""
    return make_cache_folder(FOLDER)


@functools.cache
def _limit_answers(folder: Path) -> None:
    """Delete old results once per process that adds one: looking through all takes 0.1 s."""
    delete_oldest(folder, MAX_ANSWERS)
