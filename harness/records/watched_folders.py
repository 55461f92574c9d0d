"""Folders of records, watched while trials run: one that is deleted takes its records along."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from harness.errors import OutputError
from harness.records.whole_files import writing


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
