"""Print DyNet's milliseconds per instance, split as in Fig. 2 of its paper.

    python scripts/split_dynet_phases.py system=dynet model=bilstm dataset=bilstm_synthetic

Arguments are those of `bench`. DyNet schedules inside its forward call, and only its profiler
reports the times of batches. The profiler prints at the end of a process and slows the process
down. Therefore one process times construct, forward, backward and update, and another one sums the
times of batches, including gathers, over as many passes. The rest of a phase is attributed to the
graph: building, scheduling and memory. Differences between processes need an idle machine; no
record is written.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from dynbatch.harness.contracts.system import load_adapter
from dynbatch.harness.measuring.clock import PhaseClock, pause_collector
from dynbatch.harness.measuring.processes.launch import build_worker_environment
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.overrides import read_settings
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.trials.workload import build_run_settings, load_workload
from dynbatch.harness.values.paths import ROOT

N_PASSES = 10  # the first, in which memory grows, is counted in both processes
BATCH_LINE = re.compile(r"^\s*([\d.e+-]+)\s+[\d.e+-]+%\s+(FWD|BWD) ", re.MULTILINE)


def main(overrides: list[str]) -> None:
    """Run both processes and print the segments."""
    spec = Composer().resolve_trial(read_settings(overrides))
    phases_ms = json.loads(run_in_process(spec, profiling=False).splitlines()[-1])
    printed = run_in_process(spec, profiling=True)
    batches_ms = sum_batches_ms(printed, load_workload(spec).n_instances)
    for name, milliseconds in compute_segments_ms(phases_ms, batches_ms).items():
        print(f"{name:14s}{milliseconds:9.3f} ms/instance")


def compute_segments_ms(
    phases: Mapping[str, float], batches: Mapping[str, float]
) -> dict[str, float]:
    """Compute the segments of Fig. 2 from milliseconds of phases, and of FWD and BWD batches."""
    return {
        "for graph": phases["construct"] + phases["forward"] - batches["FWD"],
        "for calc": batches["FWD"],
        "back graph": phases.get("backward", 0.0) - batches["BWD"],
        "back calc": batches["BWD"],
        "update": phases.get("update", 0.0),
    }


def sum_batches_ms(printed: str, n_instances: int) -> dict[str, float]:
    """Sum the milliseconds per instance of FWD and BWD batches in the profiler's table."""
    sums = {"FWD": 0.0, "BWD": 0.0}
    for milliseconds, direction in BATCH_LINE.findall(printed):
        sums[direction] += float(milliseconds)
    return {direction: total / N_PASSES / n_instances for direction, total in sums.items()}


def run_in_process(spec: TrialSpec, *, profiling: bool) -> str:
    """Run all passes in a new process with a worker's environment; return its output."""
    options = {**spec.system_options, "profiling": profiling}
    text = json.dumps(replace(spec, system_options=options).to_dict())
    command = [sys.executable, "-m", "scripts.split_dynet_phases", "--passes"]
    environment = build_worker_environment(spec)
    return subprocess.check_output(command, input=text, cwd=ROOT, env=environment, text=True)


def run_passes(spec: TrialSpec) -> None:
    """Run all passes over the mini-batches, and print milliseconds per instance by phase."""
    workload = load_workload(spec)
    system = load_adapter(spec.adapter)(build_run_settings(spec))
    system.prepare(workload.model, workload.weights)
    total = defaultdict[str, float](float)
    with pause_collector():
        for mini_batch in list(workload.mini_batches) * N_PASSES:
            system.load(mini_batch)
            clock = PhaseClock(system.synchronize)
            clock.start()
            system.run(clock)
            for phase, seconds in clock.stop().phases_s.items():
                total[phase] += seconds
    n_instances = N_PASSES * workload.n_instances
    print(json.dumps({phase: 1e3 * s / n_instances for phase, s in total.items()}), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--passes"]:
        run_passes(TrialSpec.from_dict(json.loads(sys.stdin.read())))
    else:
        main(sys.argv[1:])
