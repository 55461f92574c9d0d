"""What a child process prints, on its way to a log that stays small, whatever it prints."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path

KEPT_BYTES = 512 * 2**10  # of the first words, and as many of the last
_SHOWN = 500  # characters of its last words
_LEFT_OUT = " ... "
_TRACEBACK = "Traceback (most recent call last):"
_CHUNK_BYTES = 64 * 2**10  # what a pipe holds
_SAID = b"now: "  # what begins a line that the parent passes on at once


def say(words: str) -> None:
    """Print a line, in a child, that its parent passes on while the child is at work."""
    print(_SAID.decode() + " ".join(words.split()), flush=True)


class BoundedLog:
    """A file with the first KEPT_BYTES of what is written to it and, once it is over, the last."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._room = KEPT_BYTES
        self._last = bytearray()
        self._n_left_out = 0

    def write(self, data: bytes) -> None:
        """Keep what is among the first or the last; raises OSError where the disk is full."""
        self._to_file(data[: self._room])
        self._last += data[self._room :]
        self._room -= min(self._room, len(data))
        excess = max(0, len(self._last) - KEPT_BYTES)
        del self._last[:excess]
        self._n_left_out += excess

    def finish(self) -> None:
        """Write the last words behind the first."""
        if self._n_left_out:
            self._to_file(f"\n[{self._n_left_out} bytes are left out here]\n".encode())
        self._to_file(bytes(self._last))

    def _to_file(self, data: bytes) -> None:
        while data:
            data = data[self._file.write(data) or 0 :]


class Output:
    """The reading end of the pipe that a child prints to.

    It is read while the parent waits, in the same thread: a child that prints without end can
    neither fill a disk nor keep the parent from looking at its limits.

    hear: takes what the child says, line by line (say); nothing else that it prints.
    """

    def __init__(
        self, pipe: int, log: BoundedLog, hear: Callable[[str], None] = lambda words: None
    ) -> None:
        os.set_blocking(pipe, False)
        self._pipe, self._log, self._hear = pipe, log, hear
        self._unfinished = b""  # the line that is not over yet, as far as it can be a said one
        self._poll = select.poll()
        self._poll.register(pipe, select.POLLIN)
        self._is_over = False

    def take(self, until_s: float) -> None:
        """Take what comes until then, by time.monotonic, asleep between; less where all is said."""
        while not self._is_over and (left_s := until_s - time.monotonic()) > 0:
            if self._poll.poll(left_s * 1e3):
                self._take_chunk()

    def take_rest(self) -> None:
        """Take what the pipe still holds, and wait for no more."""
        while not self._is_over and self._poll.poll(0):
            self._take_chunk()
        self._log.finish()

    def _take_chunk(self) -> None:
        data = os.read(self._pipe, _CHUNK_BYTES)
        self._is_over = not data
        self._log.write(data)
        *lines, unfinished = (self._unfinished + data).split(b"\n")
        self._unfinished = unfinished[:_SHOWN]
        for line in lines:
            if line.startswith(_SAID):
                said = line[len(_SAID) :][:_SHOWN]
                self._hear(said.decode(errors="replace"))


def last_line(log: Path) -> str:
    """The last words of a process, in one line; empty where it printed none.

    All from Python's last exception on, its type first: the last line of many says little.
    """
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    filled = [line for line in lines if line.strip()]
    words = " ".join(" ".join(filled[_last_words(filled) :]).split())
    if len(words) <= _SHOWN:
        return words
    half = (_SHOWN - len(_LEFT_OUT)) // 2
    return f"{words[:half]}{_LEFT_OUT}{words[-half:]}"


def _last_words(lines: Sequence[str]) -> int:
    """The line of the exception below the last traceback, else the last line that there is."""
    begins = [place for place, line in enumerate(lines) if line.rstrip() == _TRACEBACK]
    below = range(begins[-1] + 1, len(lines)) if begins else ()
    return next((place for place in below if not lines[place].startswith(" ")), -1)
