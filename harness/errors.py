"""The named errors of the benchmark; each message is one line: found, allowed, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class BenchError(Exception):
    """Base of every error a user can cause; entry points print its message and exit with code 1."""


class ConfigError(BenchError):
    """A name, size or combination in the configuration is not allowed."""


class DataError(BenchError):
    """A corpus is missing, empty, malformed or has the wrong checksum."""


class ScheduleError(BenchError):
    """A graph or a schedule breaks its rules (a cycle, a vertex twice, a child too late)."""


class RecordError(BenchError):
    """A record cannot be read, does not match its schema, or may not share a table."""


class OutputError(BenchError):
    """A file cannot be written now (the disk is full, its folder gone); nor can those of others."""


class UnsupportedTrial(BenchError):  # noqa: N818 - an outcome that is recorded, not a fault
    """This system cannot run this trial here; the message is the reason that the record keeps."""


class ProgramError(BenchError):
    """A program over one instance breaks its rules (harness.programs); the message has its line."""


class CompileError(BenchError):
    """A function is to be compiled that uses what the compiler does not know; the line is named.

    place: the line, once it is known.
    """

    def __init__(self, text: str, place: str = "") -> None:
        super().__init__(text)
        self.place = place


def meant(word: str, known: Iterable[str]) -> str:
    """Return the known word that is closest, as a piece of a message; empty if none is close."""
    close = get_close_matches(word, list(known), n=1)
    return f", did you mean {close[0]}?" if close else ""
