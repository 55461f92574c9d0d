"""Exit handling of all commands: exit codes, one-line errors and signals."""

from __future__ import annotations

import argparse
import codecs
import io
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
from typing import Any, NoReturn, Protocol, TextIO, cast

from dynbatch.harness.errors import BenchError, ConfigError

EXIT_USAGE, EXIT_INTERNAL_ERROR, EXIT_TRIAL_FAILED = 1, 2, 3
OF_SIGNALS = 128  # exit code of a command that signal n ended, without n
KEPT = "completed records are saved; rerun the same command to resume"


def run_command(
    name: str, work: Callable[[], int], typed: Sequence[str] = (), again: str | None = None
) -> int:
    """Run a command and return its exit code.

    Args:
        typed: the user's arguments.
        again: command that resumes the work after a signal; None: name and typed.

    Returns:
        The result of `work`; 0 if the reader of standard output has closed it, as in
        `bench --help | head`; EXIT_USAGE after a one-line error that the user can fix, such as a
        file that cannot be written; EXIT_INTERNAL_ERROR after the traceback of an internal error;
        OF_SIGNALS + n after signal n.
    """
    _prepare_streams()
    output = _Output(sys.stdout)
    try:
        with raise_on_signals(), redirect_stdout(cast(TextIO, output)):
            try:
                code = work()
            except SystemExit as stop:  # argparse has printed its help
                code = int(stop.code or 0)
            output.flush()  # reports an error of standard output here, not at Python's exit
        return code
    except BenchError as error:
        print_error(error, name)
        return EXIT_USAGE
    except KeyboardInterrupt as stop:
        number = stop.number if isinstance(stop, Stopped) else signal.SIGINT
        notes = getattr(stop, "__notes__", ())
        resume = f"resume with: {again or shlex.join([name, *typed])}"
        parts = (f"stopped by {signal.Signals(number).name}", *notes, resume)
        print_message(f"{name}: {'; '.join(parts)}")
        return OF_SIGNALS + number
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        reason = reason if error.filename is None else f"{error.filename}: {reason}"
        if error is output.fault:
            _redirect_to_null(sys.stdout)
            if isinstance(error, BrokenPipeError):
                return 0
            reason = f"standard output cannot be written ({error.strerror})"
        print_message(f"{name}: {reason}; {KEPT}")
        return EXIT_USAGE
    except Exception:
        traceback.print_exc()
        print_message(f"{name}: internal error; please report the traceback above")
        return EXIT_INTERNAL_ERROR


class Main(Protocol):
    """Entry point of a command; it reads the command line if it gets no arguments."""

    def __call__(self, arguments: Sequence[str] | None = None) -> int:
        """Run the command and return its exit code."""


def make_command(
    name: str, again: str | None = None
) -> Callable[[Callable[[list[str]], int]], Main]:
    """Convert work on the user's arguments to a command's entry point; see `run_command`."""

    def convert(work: Callable[[list[str]], int]) -> Main:
        def main(arguments: Sequence[str] | None = None) -> int:
            typed = sys.argv[1:] if arguments is None else list(arguments)
            return run_command(name, lambda: work(typed), typed, again)

        return main

    return convert


def print_error(error: BaseException | str, name: str = "bench") -> None:
    print_message(f"{name}: {' '.join(str(error).split())}")


def print_message(line: str) -> None:
    """Write a line to standard error; continue without output if it cannot be written."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _redirect_to_null(sys.stderr)


class _Output:
    """Standard output that distinguishes its own errors from those of other files."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.fault: OSError | None = None

    def write(self, text: str) -> int:
        with self._remember_fault():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._remember_fault():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _remember_fault(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.fault = error
            raise


def _redirect_to_null(stream: TextIO) -> None:
    """Redirect a stream to /dev/null; Python's flush at exit would change the exit code."""
    with suppress(OSError, ValueError):  # a test's stream has no file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _prepare_streams() -> None:
    """Open files for closed standard streams, and let all replace what they cannot encode.

    Python has None for a closed stream. Without a file, the next opened file would get the number
    of the stream. Standard output gets a file that cannot be written, so that writing still fails.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="closest")


CLOSEST = {
    "\N{DAGGER}": "+",
    "\N{PLUS-MINUS SIGN}": "+/-",
    "\N{EN DASH}": "-",
    "\N{MULTIPLICATION SIGN}": "x",
}


def _encode_closest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return "".join(CLOSEST.get(character, "?") for character in characters), error.end


codecs.register_error("closest", _encode_closest)

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A terminal and a parent process often both send the signal. The second one must not interrupt the
# cleanup that the first one started. A later signal counts again.
_AGAIN_S = 5.0


class Stopped(KeyboardInterrupt):
    """Interruption of a command by a signal; its notes describe the saved results."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Raise Stopped for the signals of STOPS in the block.

    Signals that are ignored already stay ignored, for example by nohup or in a background job.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard_s = -_AGAIN_S

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal heard_s
        now_s = time.monotonic()
        if now_s - heard_s >= _AGAIN_S:
            heard_s = now_s
            raise Stopped(number)

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
    """Argument parser that reports a wrong command line as one line, with exit code 1."""

    def parse_mixed(self, typed: Sequence[str], name: str) -> argparse.Namespace:
        """Parse arguments whose positional ones, a list of this name, may follow options."""
        options, rest = self.parse_known_args(typed)
        if unknown := [text for text in rest if text.startswith("-")]:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        setattr(options, name, [*getattr(options, name), *rest])
        return options

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError instead of printing the usage and exiting with code 2."""
        raise ConfigError(f"{message}; see `{self.prog} --help`")
