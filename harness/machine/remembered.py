"""What a file's content says, worked out once and kept on disk.

Every trial's process asks what the source of this repository says. Parsing all that a trial imports
takes 0.57 s on one core, looking the answers up 0.07 s.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.machine.caches import cache_folder, forget_the_oldest
from harness.machine.kept import keep, kept

FOLDER = "source"
MOST_ANSWERS = 20_000  # then the older half is forgotten
Answer = Any  # of texts and lists, as JSON has them


def remembered(function: Callable[[bytes, str], Answer]) -> Callable[[Path, str], Answer]:
    """Make a function of a file's content and a word into one of a file and a word.

    Its answers depend on nothing else but the code of the module that it is in: they are kept by a
    hash of all three.
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
