"""Where a command may write: decided before anything is measured, by one rule for all commands.

A new file, or one in the place of a regular file that reads as what is written there: nothing else
that exists is ever moved or replaced.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ConfigError
from harness.machine.regular_files import not_regular, read_regular, target_of
from harness.records.whole_files import writing

ROOM_BYTES = 256 * 1024  # a record of long measuring takes about as much


@dataclass(frozen=True, slots=True)
class Output:
    """What a command writes to a file that a person names.

    given_as: the name as it is typed, to which the path is joined. holds: what is written, in
    words. is_ours: whether the content of a file that is there is of that kind. makes_folder:
    whether a folder that is missing is made.
    """

    given_as: str
    holds: str
    is_ours: Callable[[bytes], bool]
    makes_folder: bool = True

    def check(self, path: Path) -> None:
        """Raise ConfigError unless the file may be written at `path`.

        A symbolic link is followed: what it leads to is judged, and replaced later; the link stays.
        An empty file is anybody's.
        """
        self.check_kind(path)
        shown = f"{self.given_as}{path}"
        with _choosing_another(shown, self.given_as):
            content = read_regular(path) if path.exists() else b""
        if content and not self.is_ours(content):
            raise ConfigError(
                f"{shown} is there and is not {self.holds}, so it stays; give another name, or"
                " delete it"
            )
        with _choosing_another(shown, self.given_as):
            _write_as_much(target_of(path).parent, makes_folder=self.makes_folder)

    def check_kind(self, path: Path) -> None:
        """Raise ConfigError where something else than a file is at `path`."""
        shown = f"{self.given_as}{path}"
        with _choosing_another(shown, self.given_as):
            kind = not_regular(path)
        if kind is not None:
            raise ConfigError(f"{shown} is {kind}; give the name of a file")


def check_suffix(path: Path, holds: str, *suffixes: str, given_as: str = "out=") -> None:
    """Raise ConfigError unless the name of the file ends in one of these."""
    if path.suffix not in suffixes:
        kinds = " or ".join(suffix.removeprefix(".").upper() for suffix in suffixes)
        raise ConfigError(
            f"{given_as}{path}, but {holds} {kinds}; end it in {' or '.join(suffixes)}"
        )


def check_writable(folder: Path, given_as: str = "results_dir or out") -> None:
    """Raise ConfigError unless files can be written in `folder`, which is made if missing."""
    with _choosing_another(str(folder), given_as):
        _write_as_much(folder)


def check_room(folder: Path) -> None:
    """Raise OutputError where a record cannot be kept in `folder` now, before one is measured."""
    with writing(folder):
        _write_as_much(folder)


@contextmanager
def _choosing_another(shown: str, given_as: str) -> Iterator[None]:
    """Raise ConfigError for an OSError."""
    try:
        yield
    except OSError as error:
        choice = given_as.strip().rstrip("=")
        raise ConfigError(
            f"{shown} cannot be written ({error.strerror or error}); choose another {choice}"
        ) from error


def _write_as_much(folder: Path, *, makes_folder: bool = True) -> None:
    """Write as much as a record takes to a file that has no name, and so leaves nothing."""
    if makes_folder:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(b"\0" * ROOM_BYTES)
        probe.flush()
