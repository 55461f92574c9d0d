"""Files that commands write: atomic writes, permitted paths, and checks of directories."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from dynbatch.harness.errors import ConfigError, OutputError
from dynbatch.harness.machine.files import (
    find_irregular_kind,
    read_regular,
    replace_regular,
    resolve_target,
)

ROOM_BYTES = 256 * 1024  # about the size of the largest record


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically; an existing one moves to superseded/ next to it.

    At every moment either the old or the new file exists.

    Raises:
        OutputError: The file cannot be written; an existing file is unchanged.
    """
    aside: list[Path] = []
    with convert_write_errors(path):
        resolve_target(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            replace_regular(path, text.encode(), lambda target: aside.extend(_copy_aside(target)))
        except BaseException:
            for copy in aside:
                copy.unlink(missing_ok=True)
            raise


def replace_whole(path: Path, content: str | bytes) -> None:
    """Write a reproducible file atomically: readers see either the old or the new content."""
    with convert_write_errors(path):
        resolve_target(path).parent.mkdir(parents=True, exist_ok=True)
        replace_regular(path, content if isinstance(content, bytes) else content.encode())


@contextmanager
def convert_write_errors(path: Path) -> Iterator[None]:
    """Convert an OSError in the block, which writes to `path`, to a one-line OutputError."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written ({error.strerror or error}); existing records are"
            " intact: free disk space or fix the directory, then rerun"
        ) from error


def put_aside(path: Path) -> None:
    """Move an obsolete file to superseded/ next to it, if it is a regular file."""
    with convert_write_errors(path):
        if _copy_aside(resolve_target(path)):
            resolve_target(path).unlink()


def _copy_aside(path: Path) -> list[Path]:
    """Link or copy a regular file to superseded/; return the new path in a list."""
    if not path.is_file():
        return []
    folder = path.parent / "superseded"
    folder.mkdir(exist_ok=True)
    stem = f"{path.stem}.{path.stat().st_mtime_ns}"
    names = (f"{stem}.{n}.json" if n else f"{stem}.json" for n in count())
    while True:  # several files may have the same time stamp
        aside = folder / next(names)
        try:
            os.link(path, aside)
        except OSError:
            if aside.exists():
                continue
            replace_regular(aside, path.read_bytes())  # a file system without hard links
        return [aside]


@dataclass(frozen=True, slots=True)
class Output:
    """Output of a command to a file that the user names.

    Attributes:
        given_as: Option as the user types it, which messages put before the path.
        holds: Description of the content.
        is_ours: Returns whether the content of an existing file is of this kind.
        suffixes: Suffixes that the file's name may have; empty for any.
        makes_folder: Whether a missing directory is created.
    """

    given_as: str
    holds: str
    is_ours: Callable[[bytes], bool]
    suffixes: tuple[str, ...] = ()
    makes_folder: bool = True

    def check(self, path: Path) -> None:
        """Check that the file may be written to `path`, and that its name has an allowed suffix.

        A symbolic link is followed: its target is checked, and later replaced. An empty file may
        always be replaced.
        """
        shown = f"{self.given_as}{path}"
        with _convert_path_errors(shown, self.given_as):
            kind = find_irregular_kind(path)
            if kind is not None:
                raise ConfigError(f"{shown} is {kind}; choose a file")
            if self.suffixes and path.suffix not in self.suffixes:
                kinds = " or ".join(suffix.removeprefix(".").upper() for suffix in self.suffixes)
                raise ConfigError(
                    f"{shown}, but {self.holds} is {kinds}; choose a name that ends in"
                    f" {' or '.join(self.suffixes)}"
                )
            content = read_regular(path) if path.exists() else b""
            if content and not self.is_ours(content):
                raise ConfigError(
                    f"{shown} exists and is not {self.holds}; choose another name or delete it"
                )
            _write_probe(resolve_target(path).parent, makes_folder=self.makes_folder)


def check_writable(folder: Path, given_as: str = "results_dir or out") -> None:
    with _convert_path_errors(str(folder), given_as):
        _write_probe(folder)


def check_room(folder: Path) -> None:
    """Check, before measuring, that a directory has space for a record."""
    with convert_write_errors(folder):
        _write_probe(folder)


@contextmanager
def _convert_path_errors(shown: str, given_as: str) -> Iterator[None]:
    """Convert an OSError in the block to a ConfigError that asks for another path."""
    try:
        yield
    except OSError as error:
        choice = given_as.strip().rstrip("=")
        raise ConfigError(
            f"{shown} cannot be written ({error.strerror or error}); choose another {choice}"
        ) from error


def _write_probe(folder: Path, *, makes_folder: bool = True) -> None:
    """Write the size of a large record to an unnamed file, which vanishes when it is closed."""
    if makes_folder:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(b"\0" * ROOM_BYTES)
        probe.flush()


class WatchedFolders(ExitStack):
    """Directories that are watched for deletion and replacement since their first check.

    Each is held open, so that no new directory can get its inode number.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[Path, os.stat_result] = {}

    def check(self, folder: Path) -> None:
        """Check that a directory is the same as in the first call, which creates it if missing."""
        if folder not in self._known:
            with convert_write_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.callback(os.close, descriptor)
            self._known[folder] = os.fstat(descriptor)
        try:
            is_same = os.path.samestat(folder.stat(), self._known[folder])
        except OSError as error:
            raise OutputError(_describe_lost_folder(folder, str(error.strerror))) from error
        if not is_same:
            raise OutputError(_describe_lost_folder(folder, "another directory replaced it"))


def _describe_lost_folder(folder: Path, reason: str) -> str:
    return (
        f"{folder} was deleted, moved or replaced while trials ran ({reason}), with its records;"
        " restore it, or rerun to measure them again"
    )
