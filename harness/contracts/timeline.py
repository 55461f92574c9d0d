"""What a system needs to show the parts of a run on a timeline: a span of time for each."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

Details = dict[str, str | int | float]


class Part(Protocol):
    """Opens a part of a run: what is done within it is one span, within that of the part around.

    kind: "batch" or "kernel". Yields its details, to which may be added until it ends.
    """

    def __call__(self, kind: str, name: str, details: Details) -> AbstractContextManager[Details]:
        """Synchronise and begin; synchronise again at its end."""
