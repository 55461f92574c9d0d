"""Output of a child process: bounded logs, last words and refusals."""

from __future__ import annotations

import json
import os
import select
from io import FileIO
from pathlib import Path

from dynbatch.harness import errors
from dynbatch.harness.errors import BenchError, OutputError
from dynbatch.harness.machine.process import find_last_words
from dynbatch.harness.measuring.processes.child import REFUSED, locate_refusal

KEPT_BYTES = 512 * 2**10  # logged bytes of a child's first output, and as many of its last
_CHUNK_BYTES = 64 * 2**10  # capacity of a pipe


class ChildOutput:
    """Reader of the pipe to which a child prints, and its bounded log.

    The waiting parent reads it in the same thread, so that a child that prints endlessly can
    neither fill the disk nor keep the parent from checking the limits.

    Attributes:
        is_over: Whether the child has closed the pipe.

    Args:
        pipe: File descriptor of the reading end.
        log: File that gets the first KEPT_BYTES at once, and the last ones in `take_rest`.
    """

    def __init__(self, pipe: int, log: FileIO) -> None:
        os.set_blocking(pipe, False)
        self.pipe, self.is_over = pipe, False
        self._log = log
        self._room = KEPT_BYTES
        self._last = bytearray()
        self._n_left_out = 0

    def take_chunk(self) -> None:
        """Read what the pipe holds, at most a chunk."""
        data = os.read(self.pipe, _CHUNK_BYTES)
        self.is_over = not data
        self._write(data[: self._room])
        self._last += data[self._room :]
        self._room -= min(self._room, len(data))
        excess = max(0, len(self._last) - KEPT_BYTES)
        del self._last[:excess]
        self._n_left_out += excess

    def take_rest(self) -> None:
        """Read the rest of the pipe without waiting for more, and complete the log."""
        poll = select.poll()
        poll.register(self.pipe, select.POLLIN)
        while not self.is_over and poll.poll(0):
            self.take_chunk()
        if self._n_left_out:
            self._write(f"\n[{self._n_left_out} bytes omitted]\n".encode())
        self._write(bytes(self._last))

    def _write(self, data: bytes) -> None:
        while data:
            data = data[self._log.write(data) or 0 :]


def read_last_line(log: Path) -> str:
    return find_last_words(log.read_text(encoding="utf-8", errors="replace"))


def read_refusal(spec_path: Path, exit_code: int | None) -> BenchError | None:
    """Return the refusal of a worker as an error of the original type, or None.

    Raises:
        OutputError: The worker could not write its refusal.
    """
    path = locate_refusal(spec_path)
    if exit_code != REFUSED or not path.exists():
        return None
    try:
        refusal = json.loads(path.read_text(encoding="utf-8"))
        error: BenchError = getattr(errors, refusal["error"])(refusal["line"])
    except (ValueError, TypeError, KeyError) as fault:
        raise OutputError(
            f"the worker's error in {path.parent} is truncated; free disk space there or set TMPDIR"
            " to another directory, then rerun"
        ) from fault
    return error
