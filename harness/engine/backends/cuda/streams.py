"""Where work is queued: a stream that computes, one that copies, and marks at which they meet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import torch

Work = Callable[[], object]
Mark = Any  # what a stream has reached; None: nothing to wait for


class Stream(StrEnum):
    """Work of one stream is done in order; two streams wait for each other at marks alone."""

    COMPUTE = "compute"
    COPY = "copy"


class Streams(ABC):
    """Queues of one device; tests have some that run in the worst order that marks allow."""

    @abstractmethod
    def do(self, stream: Stream, work: Work) -> None:
        """Queue work."""

    @abstractmethod
    def mark(self, stream: Stream) -> Mark:
        """Return a mark behind all that was queued so far."""

    @abstractmethod
    def wait(self, stream: Stream, mark: Mark) -> None:
        """Let a stream go on only behind a mark of another."""

    @abstractmethod
    def reach(self, mark: Mark) -> None:
        """Wait on the host until a mark is reached."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait on the host until all is done."""


class AtOnce(Streams):
    """Work is done when it is queued: on a CPU."""

    def do(self, stream: Stream, work: Work) -> None:
        """Do it."""
        work()

    def mark(self, stream: Stream) -> Mark:
        """All is done already."""
        return None

    def wait(self, stream: Stream, mark: Mark) -> None:
        """All is done already."""

    def reach(self, mark: Mark) -> None:
        """All is done already."""

    def synchronize(self) -> None:
        """All is done already."""


class CudaStreams(Streams):
    """Torch's current stream computes, another copies."""

    def __init__(self) -> None:
        self._copy: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def _stream(self, stream: Stream) -> Any:
        return self._copy if stream is Stream.COPY else torch.cuda.current_stream()

    def do(self, stream: Stream, work: Work) -> None:
        """Start it there."""
        with torch.cuda.stream(self._stream(stream)):
            work()

    def mark(self, stream: Stream) -> Mark:
        """Record an event."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream(stream))
        return event

    def wait(self, stream: Stream, mark: Mark) -> None:
        """Wait for an event on the device."""
        if mark is not None:
            self._stream(stream).wait_event(mark)

    def reach(self, mark: Mark) -> None:
        """Wait for an event."""
        if mark is not None:
            mark.synchronize()

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize()
