"""The tracing process: runs one mini-batch of a trial for its timeline, and writes that.

    python -m harness.measuring.tracer SPEC.json TRACE.json

It is started as a worker is, once the trial has its record, and shares no process with what is
timed. Exit codes as a worker's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.contracts.system import System, load_adapter
from harness.errors import BenchError, UnsupportedTrial
from harness.measuring.clock import NullClock, collector_paused, stopwatch_of
from harness.measuring.refusal import refuse
from harness.measuring.timeline import Timeline
from harness.measuring.worker import run_settings
from harness.records.trace_events import Span, trace_text
from harness.records.whole_files import replace_whole
from harness.trials.spec import TrialSpec
from harness.trials.workload import Workload, load_workload

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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
