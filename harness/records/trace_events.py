"""Timelines as files: the trace event format that Perfetto and chrome://tracing read.

Source: "Trace Event Format" (Duffin, Google, 2016): complete events (ph X) with microseconds, and
metadata events (ph M) that name process and tracks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.contracts.timeline import Details
from harness.records.output_paths import Output

PROCESS = 1
NS_PER_US = 1e3


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time: "phase", "batch" or "kernel"; nanoseconds on one clock.

    Raises ValueError where it ends before it begins.
    """

    kind: str
    name: str
    start_ns: int
    end_ns: int
    details: Details

    def __post_init__(self) -> None:
        if self.end_ns < self.start_ns:
            raise ValueError(f"span {self.name} ends at {self.end_ns}, before {self.start_ns}")


def trace_text(title: str, tracks: Mapping[str, Sequence[Span]], facts: Mapping[str, str]) -> str:
    """A file of tracks one below the other, each from its own first span on.

    title: of the whole. facts: what else is known of it, by name.
    """
    events = [_name("process_name", 0, title)]
    for number, (name, spans) in enumerate(tracks.items(), 1):
        events += [_name("thread_name", number, name), _order(number)]
        begin_ns = min((span.start_ns for span in spans), default=0)
        events += [_event(span, number, begin_ns) for span in spans]
    content = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": dict(facts)}
    return json.dumps(content, indent=1) + "\n"


def _name(what: str, track: int, text: str) -> dict[str, object]:
    return {"ph": "M", "pid": PROCESS, "tid": track, "name": what, "args": {"name": text}}


def _order(track: int) -> dict[str, object]:
    shown = {"sort_index": track}
    return {"ph": "M", "pid": PROCESS, "tid": track, "name": "thread_sort_index", "args": shown}


def _event(span: Span, track: int, begin_ns: int) -> dict[str, object]:
    return {
        "ph": "X",
        "pid": PROCESS,
        "tid": track,
        "cat": span.kind,
        "name": span.name,
        "ts": (span.start_ns - begin_ns) / NS_PER_US,
        "dur": (span.end_ns - span.start_ns) / NS_PER_US,
        "args": span.details,
    }


def is_trace(content: bytes) -> bool:
    """Whether the content of a file is such a timeline."""
    try:
        return isinstance(json.loads(content)["traceEvents"], list)
    except (ValueError, KeyError, TypeError):
        return False


TRACE = Output("trace=", "a timeline", is_trace)
