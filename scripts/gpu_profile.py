"""Where a training step's time goes on a device: its busiest kernels, and how busy it is at all.

    python -m scripts.gpu_profile cuda [overrides of bench]

Profiles passes of one trial by PyTorch's profiler, after as many that do not count. No record is
written: a profiler slows down what it watches.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from harness.contracts.system import load_adapter
from harness.measuring.clock import PhaseClock
from harness.planning.compose import Composer
from harness.planning.resolve import spec_of
from harness.trials.spec import TrialSpec
from harness.trials.workload import load_workload, run_settings

TREE_LSTM = ("system=vertex", "model=tree_lstm", "dataset=sst", "batch_size=64", "hidden_size=256")
MOST_LINES = 25


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of kernels, and one JSON object about all of them."""
    device, *overrides = arguments if arguments is not None else sys.argv[1:]
    chosen = [*TREE_LSTM, "mode=train", f"device={device}", *overrides]
    print(profiled(spec_of(Composer().compose(chosen))))
    return 0


def profiled(spec: TrialSpec) -> str:
    """The table and the object, as text."""
    workload = load_workload(spec)
    adapter = load_adapter(spec.adapter)(run_settings(spec))
    adapter.prepare(workload.model, workload.weights)

    def run_all() -> float:
        begin = time.perf_counter()
        for mini_batch in workload.mini_batches:
            adapter.load(mini_batch)
            clock = PhaseClock(adapter.synchronize)
            clock.start(marked=False)
            adapter.run(clock)
            clock.stop()
        return time.perf_counter() - begin

    run_all()
    alone_s = run_all()
    activities = [ProfilerActivity.CPU]
    if spec.device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as found:
        watched_s = run_all()
    averages: Any = found.key_averages()
    on_device = "cuda" if spec.device == "cuda" else "cpu"
    busy_s = sum(one.self_device_time_total for one in averages) / 1e6 if on_device == "cuda" else 0
    facts = {
        "trial": spec.to_dict(),
        "torch": torch.__version__,
        "n_mini_batches": len(workload.mini_batches),
        "alone_s": alone_s,
        "watched_s": watched_s,
        "device_busy_s": busy_s,
    }
    table = averages.table(sort_by=f"self_{on_device}_time_total", row_limit=MOST_LINES)
    return f"{table}\n{json.dumps(facts)}"


if __name__ == "__main__":
    sys.exit(main())
