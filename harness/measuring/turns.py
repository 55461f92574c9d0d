"""Turns of a block: commands of the parent to run passes, and reports of the worker.

A worker that is ready waits in a read and uses no CPU time while another system has its turn. Each
message is one line of JSON. The worker reports READY once, one PassReport for each turn, and
CHECKED after its last checks; then it waits for END.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from typing import Any

from dynbatch.harness.errors import BenchError

WHOLE, MARKED, LAST, END = "whole", "marked", "last", "end"  # kinds of commands
READY, CHECKED = {"ready": True}, {"checked": True}
_CHUNK_BYTES = 65536


@dataclass(frozen=True, slots=True)
class Command:
    """Command that a worker gets.

    Attributes:
        kind: WHOLE or MARKED for a turn of passes; LAST ends all turns and starts the last checks;
            END lets the worker compare its results with other systems' and write its record.
        cycle: Number of the cycle.
    """

    kind: str
    cycle: int = 0


@dataclass(frozen=True, slots=True)
class PassReport:
    """Report on the passes that a worker has completed in its turn.

    Attributes:
        seconds: Median timed seconds of a pass.
        timed_s: Timed seconds of all passes.
        is_disturbed: See dynbatch.harness.machine.noise.Scheduling.is_disturbed.
    """

    seconds: float
    timed_s: float
    is_disturbed: bool


class Turns:
    """Worker's view of its turns, which the parent gives through a socket."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines = MessageBuffer()
        self._is_ready = False

    def wait(self) -> Command:
        """Wait for the next turn; the first call reports that this worker is ready."""
        if not self._is_ready:
            self._send(READY)
            self._is_ready = True
        while True:
            message = self._lines.take()
            if message is not None:
                return Command(str(message["kind"]), int(message["cycle"]))
            data = os.read(self._descriptor, _CHUNK_BYTES)
            if not data:
                raise BenchError("the parent gives no more turns; start the measurement again")
            self._lines.add(data)

    def report(self, done: PassReport) -> None:
        """Report that the passes of this turn are completed."""
        self._send(asdict(done))

    def finish(self) -> None:
        """Report that the last checks are completed, and wait for END."""
        self._send(CHECKED)
        self.wait()

    def _send(self, message: dict[str, Any]) -> None:
        os.write(self._descriptor, encode(message))


class MessageBuffer:
    """Buffer of received bytes that yields complete messages."""

    def __init__(self) -> None:
        self._data = b""

    def add(self, data: bytes) -> None:
        """Append received bytes.

        Raises:
            ValueError: There are more than a few messages, as only a system can send them.
        """
        self._data += data
        if len(self._data) > _CHUNK_BYTES:
            raise ValueError(f"more than {_CHUNK_BYTES} bytes without a turn")

    def take(self) -> dict[str, Any] | None:
        """Remove and return the first complete message; None without one.

        Raises:
            ValueError: A line is not a message, as only a system can send it.
        """
        line, end, rest = self._data.partition(b"\n")
        if not end:
            return None
        self._data = rest
        try:
            message = json.loads(line)
        except RecursionError as error:
            raise ValueError("a message is nested too deeply") from error
        if not isinstance(message, dict):
            raise ValueError("a line is not a message: expected an object")
        return message


def encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def parse_report(message: dict[str, Any]) -> PassReport:
    try:
        done = PassReport(
            float(message["seconds"]), float(message["timed_s"]), message["is_disturbed"] is True
        )
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError("a message is not a report of a pass") from error
    if not (0 <= done.seconds <= done.timed_s < math.inf):
        raise ValueError(f"seconds={done.seconds}, timed_s={done.timed_s}: expected 0 or more")
    return done
