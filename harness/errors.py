"""Errors of the benchmark. Each message is one line: the problem, the allowed values, the fix."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class BenchError(Exception):
    """Base of all errors that a user can cause; commands print the message and exit with code 1."""


class ConfigError(BenchError):
    """Error for a name, size or combination that the configuration does not allow."""


class DataError(BenchError):
    """Error for a dataset that is missing, empty or malformed or has the wrong checksum."""


class ScheduleError(BenchError):
    """Error for an invalid graph or schedule (a cycle, a repeated vertex, a late child)."""


class RecordError(BenchError):
    """Error for a record that is unreadable, breaks its schema or cannot share a table."""


class OutputError(BenchError):
    """Error for output that cannot be written, whatever the file (full disk, missing directory)."""


class UnsupportedTrial(BenchError):  # noqa: N818 - an outcome that is recorded, not an error
    """Outcome of a trial that its system does not support here; the record stores the message."""


class ProgramError(BenchError):
    """Error for a program that breaks the rules (docs/programs.md); the message names its line."""


class CompileError(BenchError):
    """Error for a function that uses code which the compiler does not support.

    Attributes:
        location: file and line, empty until they are known.
    """

    def __init__(self, text: str, location: str = "") -> None:
        super().__init__(text)
        self.location = location


def suggest_name(word: str, known: Iterable[str]) -> str:
    """Return ", did you mean X?" for the closest known name; empty if none is close."""
    close = get_close_matches(word, list(known), n=1)
    return f", did you mean {close[0]}?" if close else ""
