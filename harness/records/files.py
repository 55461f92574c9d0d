"""Files that commands write: allowed places, whole or not at all, in folders that stay."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType

from harness.errors import ConfigError, OutputError
from harness.machine.files import not_regular, read_regular, replace_regular, target_of

ROOM_BYTES = 256 * 1024  # a record of long measuring takes about as much


def write_whole(path: Path, text: str) -> None:
    """Write atomically; what was there, which no longer answers, moves to superseded/ beside it.

    At every moment there is the old file or the new one. Raises OutputError, with the old file in
    its place, where that cannot be done.
    """
    aside: list[Path] = []
    with writing(path):
        target_of(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            replace_regular(path, text.encode(), lambda found: aside.extend(_copy_aside(found)))
        except BaseException:
            for copy in aside:
                copy.unlink(missing_ok=True)
            raise


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
        if _copy_aside(target_of(path)):
            target_of(path).unlink()


def _copy_aside(path: Path) -> list[Path]:
    """Give a file a second name in superseded/, or copy it there; nothing where there is none."""
    if not path.is_file():
        return []
    folder = path.parent / "superseded"
    folder.mkdir(exist_ok=True)
    stem = f"{path.stem}.{path.stat().st_mtime_ns}"
    names = (f"{stem}.{n}.json" if n else f"{stem}.json" for n in count())
    while True:  # files may have been written in one moment
        aside = folder / next(names)
        try:
            os.link(path, aside)
        except OSError:
            if aside.exists():
                continue
            replace_regular(aside, path.read_bytes())  # a file system without second names
        return [aside]


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


class WatchedFolders:
    """Tells when a folder is no longer the one that it was when it was first asked about.

    Each is kept open, so that no folder made later can be taken for it.
    """

    def __init__(self) -> None:
        self._known: dict[Path, os.stat_result] = {}
        self._open = ExitStack()

    def __enter__(self) -> WatchedFolders:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def check(self, folder: Path) -> None:
        """Raise OutputError where a folder was deleted, moved or replaced since the first call.

        That makes the folder where it is not there.
        """
        if folder not in self._known:
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._open.callback(os.close, descriptor)
            self._known[folder] = os.fstat(descriptor)
        try:
            is_same = os.path.samestat(folder.stat(), self._known[folder])
        except OSError as error:
            raise OutputError(_gone(folder, str(error.strerror))) from error
        if not is_same:
            raise OutputError(_gone(folder, "another is in its place"))


def _gone(folder: Path, why: str) -> str:
    return (
        f"{folder} was deleted, moved or replaced while trials ran ({why}): records that lay there"
        " are gone with it; give it back, or the same command measures them again"
    )
