"""Measure the ceilings of a device, or profile the engine's programs on it.

    python -m scripts.gpu_device ceilings cuda > ceilings.json
    python -m scripts.gpu_device profile cuda [overrides of bench]

Ceilings are the rates of copies and exact float32 matmuls at the engine's shapes, and the times of
launches; the design of the engine's CUDA backend depends on them. A profile has the time of every
instruction of a mini-batch's programs, each replayed alone several times, so with warm caches:
their sum is not the time of a whole program. Parameters have changed afterwards. No record is
written.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from dynbatch.harness.contracts.system import load_adapter
from dynbatch.harness.engine.backends.cuda.backend import Backend
from dynbatch.harness.engine.backends.cuda.kinds import Kind, SumKind, TileKind
from dynbatch.harness.engine.backends.cuda.module import WORDS
from dynbatch.harness.engine.backends.cuda.words import Words
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.measuring.clock import PhaseClock, time_call
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


def main(arguments: Sequence[str]) -> None:
    """Print ceilings or a profile as a JSON object."""
    parser = argparse.ArgumentParser("gpu_device")
    parser.add_argument("command", choices=("ceilings", "profile"))
    parser.add_argument("device")
    parser.add_argument("overrides", nargs="*", help="settings of bench for a profile")
    typed = parser.parse_args(arguments)
    if typed.command == "ceilings":
        torch.backends.cuda.matmul.allow_tf32 = False
        result = measure_ceilings(typed.device)
    else:
        chosen = [*TREE_LSTM, "mode=train", f"device={typed.device}", *typed.overrides]
        result = profile_trial(Composer().resolve_trial(read_settings(chosen)))
    print(json.dumps(result, indent=1))


def measure_ceilings(device: str, *, copied_bytes: int = COPIED_BYTES) -> dict[str, object]:
    """Measure rates and times, whose names have units; None for those that a device does not have.

    Args:
        copied_bytes: size of the buffer of the copy.
    """
    is_cuda = device.startswith("cuda")
    scalar = torch.zeros(1, device=device)
    source = torch.zeros(copied_bytes // 4, device=device)
    target = torch.empty_like(source)
    copy_s = measure_seconds(lambda: target.copy_(source), device)

    def launch() -> None:
        for _ in range(N_LAUNCHES):
            scalar.zero_()

    return {
        "device": torch.cuda.get_device_name() if is_cuda else "cpu",
        "copied_gb_per_s": 2 * copied_bytes / copy_s / 1e9,
        "product_gflop_per_s": {
            "x".join(map(str, shape)): _measure_product(shape, device) for shape in PRODUCTS
        },
        # Of kernels that are launched from Python, and of those in a captured graph.
        "launch_us": 1e6 * measure_seconds(launch, device) / N_LAUNCHES if is_cuda else None,
        "graph_node_us": 1e6 * _measure_in_graph(scalar.zero_, N_LAUNCHES) if is_cuda else None,
    }


def _measure_product(shape: tuple[int, int, int], device: str) -> float:
    n, k, m = shape
    x, w = torch.ones(n, k, device=device), torch.ones(k, m, device=device)
    out = torch.empty(n, m, device=device)
    return 2e-9 * n * k * m / measure_seconds(lambda: torch.mm(x, w, out=out), device)


def _measure_in_graph(run: Callable[[], object], n_runs: int) -> float:
    """Return the mean time of a run in a captured graph of several."""
    run()  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(n_runs):
            run()
    return measure_seconds(graph.replay, "cuda") / n_runs


def measure_seconds(run: Callable[[], object], device: str) -> float:
    """Return the median time of a run until the device is idle; the first run does not count."""
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    return statistics.median([time_call(run, wait)[1] for _ in range(N_REPEATS + 1)][1:])


def profile_trial(spec: TrialSpec) -> dict[str, object]:
    """Time the programs of a trial's last mini-batch, whole and instruction by instruction.

    Raises:
        ConfigError: the trial does not run on the engine's CUDA backend.
    """
    workload = load_workload(spec)
    adapter: Any = load_adapter(spec.adapter)(build_run_settings(spec))
    adapter.prepare(workload.model, workload.weights)
    mini_batch_s = _time_mini_batches(adapter, workload.mini_batches)
    backend = getattr(getattr(adapter, "engine", None), "backend", None)
    if not isinstance(backend, Backend):
        raise ConfigError(f"profile times the CUDA backend, got system={spec.system}")
    kernels = {
        name: _profile_program(backend, name, program, spec.device)
        for name, program in backend.programs.items()
        if program[0]
    }
    return {
        "trial": spec.to_dict(),
        "versions": backend.list_versions(),
        "mini_batch_us": 1e6 * mini_batch_s,
        "kernels": kernels,
    }


def _time_mini_batches(adapter: Any, mini_batches: Sequence[Any]) -> float:
    """Return the median time of a mini-batch, with the host's work, after warm-up passes."""
    clock = PhaseClock(adapter.synchronize)

    def run(mini_batch: Any) -> None:
        adapter.load(mini_batch)
        clock.start(marked=False)
        adapter.run(clock)
        clock.stop()

    passes = [*mini_batches] * (N_REPEATS + 1)
    times = [time_call(partial(run, mini_batch), lambda: None)[1] for mini_batch in passes]
    return statistics.median(times[len(mini_batches) :])


def _profile_program(backend: Backend, name: str, program: Words, device: str) -> dict[str, Any]:
    module, launch = backend.bind(name)
    n_phases = int(program[0])

    def run_all() -> None:
        for phase in range(n_phases):
            launch.start(phase)

    # The same instructions, each in a phase of its own.
    ends, table = program[1 : 2 + n_phases], program[2 + n_phases :].reshape(-1, WORDS)
    alone = np.concatenate([[len(table)], np.arange(len(table) + 1), table.ravel()])
    words = torch.cat([launch.words, torch.from_numpy(alone.astype(np.int32)).to(launch.words)])
    words[launch.slot] = len(launch.words)
    one_by_one = replace(launch, words=words)
    rows = []
    for k, (number, _, n_rows, _, n_tiles, *_) in enumerate(table.tolist()):
        us = 1e6 * _replay(partial(one_by_one.start, k), device)
        what = describe_kind(module.entries[number].kind)
        rows.append((int(np.searchsorted(ends, k, side="right")) - 1, what, n_rows, n_tiles, us))
    return {"us": 1e6 * _replay(run_all, device), "phases": n_phases, "instructions": rows}


def describe_kind(kind: Kind) -> str:
    """Return the name of a kind and its sizes."""
    name = type(kind).__name__
    if isinstance(kind, TileKind):
        inner = " + ".join(str(product.k) for product in kind.products)
        return f"{name}, width {kind.width}" + (f", inner {inner}" if inner else "")
    if isinstance(kind, SumKind):
        return f"{name}, {kind.height} x {kind.width}, {kind.parts} parts"
    return name


def _replay(run: Callable[[], object], device: str) -> float:
    """Return the time of a run within a graph of several; on a CPU, of a single run."""
    if device.startswith("cuda"):
        return _measure_in_graph(run, N_REPEATS)
    return measure_seconds(run, device)


if __name__ == "__main__":
    main(sys.argv[1:])
