"""Files of records: written whole or not at all, never rewritten, and what is in the way told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.errors import OutputError
from harness.machine.regular_files import replace_regular, target_of


def write_whole(path: Path, text: str) -> None:
    """Write atomically; what was there, which no longer answers, moves to superseded/ beside it.

    Raises OutputError, with the old file in its place, where that cannot be done.
    """
    with writing(path):
        target_of(path).parent.mkdir(parents=True, exist_ok=True)
        replace_regular(path, text.encode(), once_complete=_move_aside)


def replace_whole(path: Path, content: str | bytes) -> None:
    """Write atomically what can be made again: whoever looks finds the old file or the new one.

    Raises OutputError where that cannot be done.
    """
    with writing(path):
        target_of(path).parent.mkdir(parents=True, exist_ok=True)
        replace_regular(path, content if isinstance(content, bytes) else content.encode())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise OutputError, one line with what to do, for an OSError of whoever writes to `path`."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written ({error.strerror or error}); what was kept before stays:"
            " make room or mend the folder, and the same command goes on"
        ) from error


def put_aside(path: Path) -> None:
    """Move a file that no longer answers to superseded/ beside it; nothing where there is none.

    What is no regular file stays where it is. Raises OutputError where it cannot be moved.
    """
    with writing(path):
        _move_aside(target_of(path))


def _move_aside(path: Path) -> None:
    if path.is_file():
        folder = path.parent / "superseded"
        folder.mkdir(exist_ok=True)
        aside = _free_name(folder, f"{path.stem}.{path.stat().st_mtime_ns}")
        try:
            path.replace(aside)
        except OSError:
            aside.unlink()
            raise


def _free_name(folder: Path, stem: str) -> Path:
    """Make an empty file that nobody else has: files may have been written in one moment."""
    path, n_taken = folder / f"{stem}.json", 0
    while True:
        with suppress(FileExistsError):
            path.touch(exist_ok=False)
            return path
        n_taken += 1
        path = folder / f"{stem}.{n_taken}.json"
