"""What a device can do at best: copies, exact products at the engine's shapes, and launches.

    python -m scripts.gpu_ceilings cuda > ceilings.json

The design of the engine's CUDA backend rests on these (docs/engine.md): a level of a tree is as
fast as a launch and a product of few rows. Launches, graphs and barriers are of CUDA alone.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from harness.compiler.generated import load_generated
from harness.engine.backends.cuda.backend import PROGRAMS_PER_PROCESSOR
from harness.engine.backends.cuda.launching import COOPERATIVE, OPTIONS
from harness.engine.backends.cuda.module import BARRIER, HEADER

N_REPEATS = 7
COPIED_BYTES = 2**28
N_LAUNCHES = 1000
# Rows by inner by columns: levels of a tree at hidden size 256 and 512, and the leaves of 64 trees.
PRODUCTS = ((16, 512, 768), (64, 512, 768), (1280, 256, 768), (64, 1024, 1536), (2048, 2048, 2048))
# The barrier of the engine's own persistent kernels, many times over.
MEETING = f"""{HEADER}
{BARRIER}

@triton.jit(do_not_specialize=["n"])
def run(barrier, n):
    for phase in range(0, n):
        meet(barrier, (phase + 1) * tl.num_programs(0))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one JSON object."""
    device = (arguments if arguments is not None else sys.argv[1:])[0]
    torch.backends.cuda.matmul.allow_tf32 = False
    print(json.dumps(ceilings(device), indent=2))
    return 0


def ceilings(device: str, *, copied_bytes: int = COPIED_BYTES) -> dict[str, object]:
    """Numbers by what they are of, the units in their names; None where a device has none."""
    is_cuda = device.startswith("cuda")
    source = torch.zeros(copied_bytes // 4, device=device)
    target = torch.empty_like(source)
    copy_s = seconds(lambda: target.copy_(source), device)
    return {
        "device": torch.cuda.get_device_name() if is_cuda else "cpu",
        "copied_gb_per_s": 2 * copied_bytes / copy_s / 1e9,
        "product_gflop_per_s": {
            "x".join(map(str, shape)): _product(shape, device) for shape in PRODUCTS
        },
        "launch_us": _launch_us(device) if is_cuda else None,
        "graph_node_us": _graph_node_us(device) if is_cuda else None,
        "barrier_us": _barrier_us(device) if is_cuda else None,
    }


def _product(shape: tuple[int, int, int], device: str) -> float:
    n, k, m = shape
    x, w = torch.ones(n, k, device=device), torch.ones(k, m, device=device)
    out = torch.empty(n, m, device=device)
    return 2e-9 * n * k * m / seconds(lambda: torch.mm(x, w, out=out), device)


def _launch_us(device: str) -> float:
    """Of one kernel of many, started from Python."""
    one = torch.zeros(1, device=device)

    def launch() -> None:
        for _ in range(N_LAUNCHES):
            one.zero_()

    return 1e6 * seconds(launch, device) / N_LAUNCHES


def _graph_node_us(device: str) -> float:
    """Of one kernel of a captured graph of many."""
    one = torch.zeros(1, device=device)
    one.zero_()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(N_LAUNCHES):
            one.zero_()
    return 1e6 * seconds(graph.replay, device) / N_LAUNCHES


def _barrier_us(device: str) -> float:
    """Of one launch that does nothing else, with as many programs as a persistent kernel has."""
    kernel: Any = load_generated(MEETING, "run")
    n_programs = torch.cuda.get_device_properties(device).multi_processor_count
    grid = (n_programs * PROGRAMS_PER_PROCESSOR,)
    barrier = torch.zeros(1, dtype=torch.int32, device=device)

    def meet(n: int) -> None:
        barrier.zero_()
        kernel[grid](barrier, n, **OPTIONS, **COOPERATIVE)

    spent = [seconds(partial(meet, n), device) for n in (0, N_LAUNCHES)]
    return 1e6 * (spent[1] - spent[0]) / N_LAUNCHES


def seconds(run: Callable[[], object], device: str) -> float:
    """The median time of a run, all of whose work is over; the first does not count."""
    times = []
    for _ in range(N_REPEATS + 1):
        begin = time.perf_counter()
        run()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


if __name__ == "__main__":
    sys.exit(main())
