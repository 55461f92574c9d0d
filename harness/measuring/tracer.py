"""The tracing process: runs one mini-batch of a trial for its timeline, and writes that.

    python -m harness.measuring.tracer SPEC.json TRACE.json

It is started as a worker is, once the trial has its record, and shares no process with what is
timed. Exit codes as a worker's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.contracts.system import System, load_adapter
from harness.contracts.timeline import Details
from harness.errors import BenchError, UnsupportedTrial
from harness.measuring.child import refuse
from harness.measuring.clock import Now, NullClock, collector_paused, now_ns, stopwatch_of
from harness.records.files import replace_whole
from harness.trials.spec import TrialSpec
from harness.trials.workload import Workload, load_workload, run_settings

N_WARM = 3  # runs before the one that is shown
WHOLE, IN_PARTS = "as it runs", "part by part, each by itself"


def main(arguments: Sequence[str]) -> int:
    """Trace the spec in the first file, and write to the second."""
    spec_path, trace_path = (Path(argument) for argument in arguments)
    spec = TrialSpec.from_dict(json.loads(spec_path.read_text(encoding="utf-8")))
    try:
        replace_whole(trace_path, traced(spec))
    except BenchError as error:
        return refuse(spec_path, error)
    return 0


def traced(spec: TrialSpec) -> str:
    """The timeline of the first mini-batch of a trial, as a file has it.

    Raises UnsupportedTrial where the system does not run it, or tells no phase of a run.
    """
    workload = load_workload(spec)
    adapter = load_adapter(spec.adapter)
    settings = run_settings(spec)
    reason = adapter.skip(workload.model, settings)
    if reason is not None:
        raise UnsupportedTrial(f"system={spec.system} has no timeline here: {reason}")
    system = adapter(settings)
    make_ready(system, workload)
    tracks = tracks_of(system)
    if not tracks[WHOLE]:
        raise UnsupportedTrial(
            f"system={spec.system} marks no phase of a mini-batch, so that it has no timeline;"
            " choose a system that tells phases apart, such as vertex"
        )
    title = f"{spec.system}, {spec.model}, batch size {spec.batch_size}, {spec.mode}"
    facts = {"trial": spec.trial_id, "command": spec.command, **system.in_force()}
    facts |= {f"program {name}": "\n".join(lines) for name, lines in system.listing().items()}
    return trace_text(title, tracks, facts)


def make_ready(system: System, workload: Workload) -> None:
    """Prepare, learn or choose, compile, and run until the first mini-batch is loaded and warm."""
    system.prepare(workload.model, workload.weights)
    first = workload.mini_batches[0]
    if system.learns:
        system.learn(first)
    if system.chooses:
        system.choose(workload.mini_batches, stopwatch_of(system.synchronize))
    system.compile_for(first)
    for _ in range(N_WARM):
        system.load(first)
        system.run(NullClock())
    system.load(first)


def tracks_of(system: System) -> dict[str, list[Span]]:
    """Phases of the loaded mini-batch as it runs, then in parts, where a system tells any."""
    tracks = {}
    with collector_paused():
        whole = Timeline(system.synchronize)
        system.run(whole)
        tracks[WHOLE] = whole.spans
        in_parts = Timeline(system.synchronize)
        system.run_in_parts(in_parts, in_parts.part)  # once for what only parts need compiled
        in_parts = Timeline(system.synchronize)
        system.run_in_parts(in_parts, in_parts.part)
        if any(span.kind != "phase" for span in in_parts.spans):
            tracks[IN_PARTS] = in_parts.spans
    return tracks


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
