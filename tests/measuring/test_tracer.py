"""Timelines with the fields that Perfetto and chrome://tracing require, and correct times."""

from __future__ import annotations

import pytest

from dynbatch.harness.measuring.tracer import Span, Timeline, format_trace
from dynbatch.harness.terminal.command_line import is_trace
from tests.support.fake_time import FakeTime
from tests.support.trace_files import checked


def timeline_of_a_run() -> Timeline:
    time = FakeTime()
    timeline = Timeline(lambda: time.move(0.5), time)  # every reading waits for the device
    time.move(2)
    timeline.mark("construct")
    with timeline.record_span("batch", "leaf x 3", {"rows": 3}) as details:
        time.move(1)
        with timeline.record_span("kernel", "product W", {}):
            time.move(4)
        details["kernels"] = 1
    timeline.mark("forward")
    return timeline


def test_span_times_are_read_after_synchronization() -> None:
    spans = {span.name: span for span in timeline_of_a_run().spans}
    seconds = {name: (span.end_ns - span.start_ns) * 1e-6 for name, span in spans.items()}
    assert seconds == {"construct": 2.5, "product W": 4.5, "leaf x 3": 6.5, "forward": 7.5}
    assert spans["leaf x 3"].details == {"rows": 3, "kernels": 1}
    assert spans["leaf x 3"].start_ns < spans["product W"].start_ns
    assert spans["construct"].end_ns <= spans["leaf x 3"].start_ns


def test_a_file_is_in_the_trace_event_format() -> None:
    spans = timeline_of_a_run().spans
    text = format_trace("a run", {"whole": spans[:1], "in parts": spans}, {"trial": "x"})
    events = checked(text)
    shown = [(e["tid"], e["cat"], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert shown == [
        (1, "phase", "construct", 0.0, 2500.0),
        (2, "phase", "construct", 0.0, 2500.0),
        (2, "kernel", "product W", 4500.0, 4500.0),
        (2, "batch", "leaf x 3", 3000.0, 6500.0),
        (2, "phase", "forward", 2500.0, 7500.0),
    ]
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert named == {1: "whole", 2: "in parts"}
    # A track may be empty.
    assert [e["ph"] for e in checked(format_trace("a run", {"none": []}, {}))] == ["M"] * 3


def test_no_span_ends_before_it_begins() -> None:
    with pytest.raises(ValueError, match="ends at 1, before 2"):
        Span("phase", "forward", 2, 1, {})


@pytest.mark.parametrize(
    ("content", "ours"),
    [
        (format_trace("a run", {}, {}).encode(), True),
        (b'{"traceEvents": 1}', False),
        (b'{"status": "ok"}', False),
        (b"[]", False),
        (b"no JSON", False),
        (b"\xff", False),
    ],
)
def test_timeline_is_distinguished_from_other_files(content: bytes, ours: bool) -> None:
    assert is_trace(content) == ours
