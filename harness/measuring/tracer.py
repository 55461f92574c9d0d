"""Tracing process: runs one mini-batch of a trial and writes its timeline.

    python -m dynbatch.harness.measuring.tracer SPEC.json TRACE.json

It starts like a worker, after the trial has its record, and in a process of its own. Its exit codes
are those of a worker.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dynbatch.harness.contracts.system import System, load_adapter
from dynbatch.harness.contracts.timeline import Details
from dynbatch.harness.errors import BenchError, UnsupportedTrial
from dynbatch.harness.measuring.clock import Now, NullClock, now_ns, pause_collector
from dynbatch.harness.measuring.processes.child import refuse
from dynbatch.harness.records.files import replace_whole
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.trials.workload import Workload, build_run_settings, load_workload

N_WARM = 3  # runs before the one that is shown
WHOLE, IN_PARTS = "as it runs", "part by part, each by itself"


def main(arguments: Sequence[str]) -> int:
    """Trace the spec in the first file and write the timeline to the second."""
    spec_path, trace_path = (Path(argument) for argument in arguments)
    spec = TrialSpec.from_dict(json.loads(spec_path.read_text(encoding="utf-8")))
    try:
        replace_whole(trace_path, trace_trial(spec))
    except BenchError as error:
        return refuse(spec_path, error)
    return 0


def trace_trial(spec: TrialSpec) -> str:
    """Return the timeline of a trial's first mini-batch in Chrome's trace format (JSON).

    Raises:
        UnsupportedTrial: The system does not support the trial, or separates no phases.
    """
    workload = load_workload(spec)
    adapter = load_adapter(spec.adapter)
    settings = build_run_settings(spec)
    reason = adapter.skip(workload.model, settings)
    if reason is not None:
        raise UnsupportedTrial(f"system={spec.system} has no timeline here: {reason}")
    system = adapter(settings)
    prepare_and_warm_up(system, workload)
    tracks = trace_mini_batch(system)
    if not tracks[WHOLE]:
        raise UnsupportedTrial(
            f"system={spec.system} marks no phases, so it has no timeline; choose a system"
            " with phases, such as vertex"
        )
    title = f"{spec.system}, {spec.model}, batch size {spec.batch_size}, {spec.mode}"
    facts = {"trial": spec.trial_id, "command": spec.command, **system.effective_options()}
    facts |= {f"program {name}": "\n".join(lines) for name, lines in system.listing().items()}
    return format_trace(title, tracks, facts)


def prepare_and_warm_up(system: System, workload: Workload) -> None:
    """Prepare a system, let it learn, and warm up and load its first mini-batch."""
    system.prepare(workload.model, workload.weights)
    first = workload.mini_batches[0]
    if system.learns:
        system.learn(first)
    system.compile_for(first)
    for _ in range(N_WARM):
        system.load(first)
        system.run(NullClock())
    system.load(first)


def trace_mini_batch(system: System) -> dict[str, list[Span]]:
    """Trace the loaded mini-batch as a whole, then in parts if the system separates any."""
    tracks = {}
    with pause_collector():
        whole = Timeline(system.synchronize)
        system.run(whole)
        tracks[WHOLE] = whole.spans
        in_parts = Timeline(system.synchronize)
        system.run_traced(in_parts, in_parts.record_span)  # compiles what only this mode needs
        in_parts = Timeline(system.synchronize)
        system.run_traced(in_parts, in_parts.record_span)
        if any(span.kind != "phase" for span in in_parts.spans):
            tracks[IN_PARTS] = in_parts.spans
    return tracks


class Timeline:
    """Clock that records marks and parts as spans; it synchronizes before every reading.

    Attributes:
        spans: Spans in the order in which they end.
    """

    def __init__(self, synchronize: Callable[[], None], now_ns: Now = now_ns) -> None:
        self._synchronize, self._now_ns = synchronize, now_ns
        self.spans: list[Span] = []
        self._previous = self._read()

    def mark(self, phase: str) -> None:
        """End a phase that started at the previous mark."""
        now = self._read()
        self.spans.append(Span("phase", phase, self._previous, now, {}))
        self._previous = now

    def divide(self, shares: Mapping[str, float]) -> None:
        """Divide the time since the previous mark into consecutive phases.

        Phases that alternated are shown as if one had followed the other.
        """
        elapsed = self._read() - self._previous if shares else 0
        for phase, share in shares.items():
            end = self._previous + int(share * elapsed)
            self.spans.append(Span("phase", phase, self._previous, end, {}))
            self._previous = end

    @contextmanager
    def record_span(self, kind: str, name: str, details: Details) -> Iterator[Details]:
        """Record the block as a span; see dynbatch.harness.contracts.timeline.Part."""
        facts = dict(details)
        begin = self._read()
        yield facts
        self.spans.append(Span(kind, name, begin, self._read(), facts))

    def _read(self) -> int:
        self._synchronize()
        return self._now_ns()


PROCESS = 1
NS_PER_US = 1e3


@dataclass(frozen=True, slots=True)
class Span:
    """Time span of a phase, a batch or a kernel.

    Attributes:
        kind: "phase", "batch" or "kernel".
        start_ns: Nanoseconds on the clock of the timeline, as for end_ns.
        details: Facts to show with the span.
    """

    kind: str
    name: str
    start_ns: int
    end_ns: int
    details: Details

    def __post_init__(self) -> None:
        if self.end_ns < self.start_ns:
            raise ValueError(f"span {self.name} ends at {self.end_ns}, before {self.start_ns}")


def format_trace(title: str, tracks: Mapping[str, Sequence[Span]], facts: Mapping[str, str]) -> str:
    """Return a trace file in which every track starts at its own first span."""
    events = [_build_label_event("process_name", 0, name=title)]
    for number, (name, spans) in enumerate(tracks.items(), 1):
        events += [
            _build_label_event("thread_name", number, name=name),
            _build_label_event("thread_sort_index", number, sort_index=number),
        ]
        begin_ns = min((span.start_ns for span in spans), default=0)
        events += [_build_event(span, number, begin_ns) for span in spans]
    content = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": dict(facts)}
    return json.dumps(content, indent=1) + "\n"


def _build_label_event(what: str, track: int, **shown: object) -> dict[str, object]:
    return {"ph": "M", "pid": PROCESS, "tid": track, "name": what, "args": shown}


def _build_event(span: Span, track: int, begin_ns: int) -> dict[str, object]:
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
