"""Contract for showing the parts of a run as time spans on a timeline."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

Details = dict[str, str | int | float]


class Part(Protocol):
    """Context manager factory for a part of a run, which becomes a span; parts may be nested.

    The kind is "batch" or "kernel". The context manager yields the details of the span, which may
    be extended until it ends.
    """

    def __call__(self, kind: str, name: str, details: Details) -> AbstractContextManager[Details]:
        """Synchronize and start a part; synchronize again at its end."""
