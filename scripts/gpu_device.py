"""Measure the ceilings of a device, or profile a training step on it.

    python -m scripts.gpu_device ceilings cuda > ceilings.json
    python -m scripts.gpu_device profile cuda [overrides of bench]

Ceilings are the rates of copies and exact float32 matmuls at the engine's shapes, and the times of
launches; the design of the engine's CUDA backend depends on them. A profile has the passes of one
trial under PyTorch's profiler, after warm-up passes. No record is written, because a profiler slows
down the code that it profiles.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from dynbatch.harness.contracts.system import load_adapter
from dynbatch.harness.measuring.clock import PhaseClock
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.overrides import read_settings
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.trials.workload import build_run_settings, load_workload

N_REPEATS = 7
COPIED_BYTES = 2**28
N_LAUNCHES = 1000
# (rows, inner, columns): levels of a tree at hidden sizes 256 and 512, and the leaves of 64 trees.
PRODUCTS = ((16, 512, 768), (64, 512, 768), (1280, 256, 768), (64, 1024, 1536), (2048, 2048, 2048))
TREE_LSTM = ("system=vertex", "model=tree_lstm", "dataset=sst", "batch_size=64", "hidden_size=256")
MAX_LINES = 25


def main(arguments: Sequence[str]) -> int:
    """Print ceilings as a JSON object, or a table of kernels and a JSON object of totals."""
    command, device, *overrides = arguments
    if command == "ceilings":
        torch.backends.cuda.matmul.allow_tf32 = False
        print(json.dumps(measure_ceilings(device), indent=2))
    else:
        chosen = [*TREE_LSTM, "mode=train", f"device={device}", *overrides]
        print(profile_trial(Composer().resolve_trial(read_settings(chosen))))
    return 0


def measure_ceilings(device: str, *, copied_bytes: int = COPIED_BYTES) -> dict[str, object]:
    """Measure rates and times, whose names have units; None for those that a device does not have.

    Args:
        copied_bytes: size of the buffer of the copy.
    """
    is_cuda = device.startswith("cuda")
    source = torch.zeros(copied_bytes // 4, device=device)
    target = torch.empty_like(source)
    copy_s = measure_seconds(lambda: target.copy_(source), device)
    return {
        "device": torch.cuda.get_device_name() if is_cuda else "cpu",
        "copied_gb_per_s": 2 * copied_bytes / copy_s / 1e9,
        "product_gflop_per_s": {
            "x".join(map(str, shape)): _measure_product(shape, device) for shape in PRODUCTS
        },
        "launch_us": _measure_launch_us(device) if is_cuda else None,
        "graph_node_us": _measure_graph_node_us(device) if is_cuda else None,
    }


def _measure_product(shape: tuple[int, int, int], device: str) -> float:
    n, k, m = shape
    x, w = torch.ones(n, k, device=device), torch.ones(k, m, device=device)
    out = torch.empty(n, m, device=device)
    return 2e-9 * n * k * m / measure_seconds(lambda: torch.mm(x, w, out=out), device)


def _measure_launch_us(device: str) -> float:
    """Return the mean time of kernels that are launched from Python."""
    scalar = torch.zeros(1, device=device)

    def launch() -> None:
        for _ in range(N_LAUNCHES):
            scalar.zero_()

    return 1e6 * measure_seconds(launch, device) / N_LAUNCHES


def _measure_graph_node_us(device: str) -> float:
    """Return the mean time of kernels in a captured graph."""
    scalar = torch.zeros(1, device=device)
    scalar.zero_()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(N_LAUNCHES):
            scalar.zero_()
    return 1e6 * measure_seconds(graph.replay, device) / N_LAUNCHES


def measure_seconds(run: Callable[[], object], device: str) -> float:
    """Return the median time of a run until the device is idle; the first run does not count."""
    times = []
    for _ in range(N_REPEATS + 1):
        begin = time.perf_counter()
        run()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def profile_trial(spec: TrialSpec) -> str:
    """Profile a pass of a trial; return a table of kernels and a JSON object of totals."""
    workload = load_workload(spec)
    adapter = load_adapter(spec.adapter)(build_run_settings(spec))
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
    with profile(activities=activities) as profiler:
        watched_s = run_all()
    averages: Any = profiler.key_averages()
    on_device = "cuda" if spec.device == "cuda" else "cpu"
    # An operator of PyTorch has the times of its kernels too, which are rows of their own.
    kernels = [row for row in averages if row.device_type == DeviceType.CUDA]
    facts = {
        "trial": spec.to_dict(),
        "torch": torch.__version__,
        "n_mini_batches": len(workload.mini_batches),
        "alone_s": alone_s,
        "watched_s": watched_s,
        "device_busy_s": sum(kernel.self_device_time_total for kernel in kernels) / 1e6,
    }
    table = averages.table(sort_by=f"self_{on_device}_time_total", row_limit=MAX_LINES)
    return f"{table}\n{json.dumps(facts)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
