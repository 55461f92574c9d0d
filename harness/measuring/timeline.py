"""A run on a timeline: a span for each phase, and for each part that a system tells apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from harness.contracts.timeline import Details
from harness.measuring.clock import Now, now_ns
from harness.records.trace_events import Span


class Timeline:
    """Takes marks as a clock does, and parts; every reading comes after a synchronise.

    spans: in the order in which they end.
    """

    def __init__(self, synchronize: Callable[[], None], now_ns: Now = now_ns) -> None:
        self._synchronize, self._now_ns = synchronize, now_ns
        self.spans: list[Span] = []
        self._previous = self._read()

    def mark(self, phase: str) -> None:
        """End a phase, which began with the mark before it."""
        now = self._read()
        self.spans.append(Span("phase", phase, self._previous, now, {}))
        self._previous = now

    def divide(self, shares: Mapping[str, float]) -> None:
        """Phases of those lengths: what came in turns is shown as if one had followed the other."""
        elapsed = self._read() - self._previous if shares else 0
        for phase, share in shares.items():
            end = self._previous + int(share * elapsed)
            self.spans.append(Span("phase", phase, self._previous, end, {}))
            self._previous = end

    @contextmanager
    def part(self, kind: str, name: str, details: Details) -> Iterator[Details]:
        """See harness.contracts.timeline.Part."""
        found = dict(details)
        begin = self._read()
        yield found
        self.spans.append(Span(kind, name, begin, self._read(), found))

    def _read(self) -> int:
        self._synchronize()
        return self._now_ns()
