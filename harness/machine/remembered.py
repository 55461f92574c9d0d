"""What a file's content says, worked out once and kept on disk.

Every trial's process asks what the source of this repository says. Parsing all that a trial imports
takes 0.57 s on one core, looking the answers up 0.07 s.
"""

from __future__ import annotations

import functools
import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.machine.caches import cache_folder

FOLDER = "source"
MOST_ANSWERS = 20_000  # then all are forgotten: old ones of edited files would never be
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
    try:
        return json.loads(place.read_bytes())
    except (OSError, ValueError):  # not there, or cut off
        answer = function(content, word)
        _keep(place, json.dumps(answer))
        return answer


@functools.cache
def _code_of(file: str) -> bytes:
    return hashlib.sha256(Path(file).read_bytes()).digest()


@functools.cache
def answers_folder() -> Path | None:
    """Where answers are kept; None where no folder can be written."""
    folder = cache_folder(FOLDER)
    try:
        answers = [] if folder is None else list(folder.iterdir())
        for path in answers if len(answers) > MOST_ANSWERS else ():
            path.unlink(missing_ok=True)
    except OSError:
        return None
    return folder


def _keep(place: Path, text: str) -> None:
    """Write an answer whole: others may read it at any moment."""
    try:
        with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False) as file:
            file.write(text)
        Path(file.name).replace(place)
    except OSError:  # a full disk: it is worked out again
        return
