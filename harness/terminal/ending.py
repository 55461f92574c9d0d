"""How every command ends: with an exit code, and in one line where something stopped it."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from types import FrameType
from typing import Any, NoReturn, TextIO, cast

from harness.errors import BenchError, ConfigError

USAGE, FAULT, FAILED = 1, 2, 3
OF_SIGNALS = 128  # a command that signal n ended has the exit code 128 + n
KEPT = "what was measured is kept, and the same command goes on"


def run_command(
    name: str, work: Callable[[], int], typed: Sequence[str] = (), again: str | None = None
) -> int:
    """Do the work of a command, and return the exit code.

    The work's own; 0 where the reader of its output has seen enough, as in `bench --help | head`;
    USAGE after a line for what a user can change, be it output or a file that cannot be written;
    FAULT after a traceback for a fault of ours; after a line for signal n OF_SIGNALS + n.

    again: the command that goes on after a signal; name and typed where it is None.
    """
    _fill_closed_streams()
    output = _Output(sys.stdout)
    try:
        with stoppable(), redirect_stdout(cast(TextIO, output)):
            code = _code_of(work)
            output.flush()  # so that a fault of the output is told here, not when Python ends
        return code
    except BenchError as error:
        complain(error, name)
        return USAGE
    except KeyboardInterrupt as stop:
        number = stop.number if isinstance(stop, Stopped) else signal.SIGINT
        notes = getattr(stop, "__notes__", ())
        goes_on = f"to go on: {again or shlex.join([name, *typed])}"
        words = (f"ended by {signal.Signals(number).name}", *notes, goes_on)
        tell(f"{name}: {'; '.join(words)}")
        return OF_SIGNALS + number
    except OSError as error:
        if error is output.fault:
            _mute(sys.stdout)
            if isinstance(error, BrokenPipeError):
                return 0
        tell(f"{name}: {_what_fails(error, output)}; {KEPT}")
        return USAGE
    except Exception:
        traceback.print_exc()
        tell(f"{name}: a fault of the harness; please report the lines above")
        return FAULT


def complain(error: BaseException | str, name: str = "bench") -> None:
    """Say what is wrong in one line."""
    tell(f"{name}: {' '.join(str(error).split())}")


def tell(line: str) -> None:
    """Write a line to standard error; nobody may read there, and the work goes on."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _mute(sys.stderr)


def _code_of(work: Callable[[], int]) -> int:
    try:
        return work()
    except SystemExit as stop:  # argparse has printed its help
        return int(stop.code or 0)


class _Output:
    """Standard output that knows its own faults from those of other files."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.fault: OSError | None = None

    def write(self, text: str) -> int:
        with self._remembering():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._remembering():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.fault = error
            raise


def _what_fails(error: OSError, output: _Output) -> str:
    if error is output.fault:
        return f"standard output cannot be written ({error.strerror})"
    reason = error.strerror or " ".join(str(error).split())
    return reason if error.filename is None else f"{error.filename}: {reason}"


def _mute(stream: TextIO) -> None:
    """Have nothing more said there, not even by Python's own end, which would change the code."""
    with suppress(OSError, ValueError):  # a test's stream has no number
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fill_closed_streams() -> None:
    """Give closed standard streams a file: the next that is opened would be taken for them.

    Python has None for them. Standard output gets one that cannot be written, as it could not be.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# One wish to end often comes twice (a terminal and who waits for it both say so): the second must
# not interrupt what the first set going. After a while another is one of its own.
_AGAIN_S = 5.0


class Stopped(KeyboardInterrupt):
    """A signal ended the command; its notes say what is kept."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def stoppable() -> Iterator[None]:
    """Have the signals of STOPS raise Stopped in the block, but for those that are ignored.

    As with nohup, and with SIGINT in the background of a script.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard_s = -_AGAIN_S

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal heard_s
        before_s, heard_s = heard_s, time.monotonic()
        if heard_s - before_s >= _AGAIN_S:
            raise Stopped(number)
        heard_s = before_s

    before = {number: signal.getsignal(number) for number in STOPS}
    ours = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


class OneLineParser(argparse.ArgumentParser):
    """A wrong command line is one line and exit code 1, as every other error of the user."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError instead of printing the usage and leaving with exit code 2."""
        raise ConfigError(f"{message}; see `{self.prog} --help`")
