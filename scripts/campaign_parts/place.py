"""Where one case happens: its folders, its processes and what they leave behind."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from harness.values.places import ROOT

MARK = "CAMPAIGN_CASE"  # the variable by which a case's processes are known, detached ones too
MOST_TEXT = 200_000  # characters kept of what a command prints
MOST_FILE_BYTES = 512 * 2**20  # so that a flood does not fill this machine's disk
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended; returncode: None where it had to be ended."""

    returncode: int | None
    stdout: str
    stderr: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Place:
    """A folder for the results, temporary files and working folder of one case.

    cache: the user's cache, which cases may share. grace_s: how long processes may take to notice
    that their parent is gone.
    """

    folder: Path
    cache: Path
    grace_s: float = 3.0

    @property
    def results(self) -> Path:
        """Given to commands as results_dir."""
        return self.folder / "results"

    @property
    def tmp(self) -> Path:
        """Where commands put temporary files."""
        return self.folder / "tmp"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of every command of this case."""
        ours = {
            "PYTHONPATH": str(ROOT),
            "PYTHONSAFEPATH": "1",
            "TMPDIR": str(self.tmp),
            "XDG_CACHE_HOME": str(self.cache),
            MARK: str(self.folder),
        }
        return {**os.environ, **ours}

    def start(
        self,
        command: Sequence[str],
        *,
        name: str = "said",
        stdout: Path | None = None,
        file_bytes: int = MOST_FILE_BYTES,
    ) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own; what it prints goes to files of this place.

        stdout: a file in place of that for standard output. file_bytes: no file may grow beyond.
        """
        self.tmp.mkdir(parents=True, exist_ok=True)
        self.cache.mkdir(parents=True, exist_ok=True)
        with self._open(name, "out", stdout) as out, self._open(name, "err") as err:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        with suppress(ProcessLookupError):  # it is over already
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
        return process

    def _open(self, name: str, kind: str, path: Path | None = None) -> IO[bytes]:
        return (path or self.folder / f"{name}.{kind}").open("wb")

    def wait(
        self, process: subprocess.Popen[bytes], limit_s: float, *, name: str = "said"
    ) -> Ended:
        """Wait for a command of this place; what outlives its time is ended."""
        begin = time.monotonic()
        returncode: int | None = None
        try:
            returncode = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self.end_all()
            process.wait()
        except BaseException:  # the campaign itself is ended
            self.end_all()
            raise
        seconds = time.monotonic() - begin
        return Ended(returncode, self._said(name, "out"), self._said(name, "err"), seconds)

    def run(self, command: Sequence[str], limit_s: float, **how: object) -> Ended:
        """Run a command to its end; `how` as in start."""
        return self.wait(self.start(command, **how), limit_s)  # type: ignore[arg-type]

    def _said(self, name: str, kind: str) -> str:
        path = self.folder / f"{name}.{kind}"
        with suppress(FileNotFoundError), path.open("rb") as file:
            return file.read(MOST_TEXT).decode(errors="replace")
        return ""

    def survivors(self) -> list[psutil.Process]:
        """Processes of this case that live longer than the grace."""
        until = time.monotonic() + self.grace_s
        while (found := self.processes()) and time.monotonic() < until:
            time.sleep(POLL_S)
        return found

    def processes(self) -> list[psutil.Process]:
        """Processes of this case that live now."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            alive = process.status() != psutil.STATUS_ZOMBIE
            return alive and process.environ().get(MARK) == str(self.folder)
        except (psutil.Error, OSError):
            return False

    def end_all(self) -> None:
        """End all processes of this case."""
        while found := self.processes():
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            psutil.wait_procs(found, timeout=1)


def python(module: str, *arguments: str) -> list[str]:
    """A module of this repository as a command."""
    return [sys.executable, "-m", module, *arguments]
