"""What every kernel of every model takes of a GPU's processors, compiled here without a GPU.

    BENCH_DATA=... python -m scripts.kernel_resources

Writes the table of docs/gpu_kernels.md. Compiling all takes half an hour at first; what was
compiled is found again, so that an ended call goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from harness.engine.backends.cuda.offline import ARCHITECTURES, Resources, resources_of
from harness.values.places import ROOT
from scripts.gpu_workloads import WORKLOADS, GpuWorkload
from scripts.marked_page import MarkedPage

PAGE = MarkedPage(ROOT / "docs" / "gpu_kernels.md", "kernel_resources")


def main() -> int:
    """Write the table."""
    lines = [
        f"| workload | kernel | kinds | {' | '.join(ARCHITECTURES)} |",
        f"|---|---|---|{'---|' * len(ARCHITECTURES)}",
        *(line for workload in WORKLOADS for line in _lines(workload)),
    ]
    PAGE.write("\n".join(lines))
    return 0


def _lines(workload: GpuWorkload) -> Iterator[str]:
    """One for each kernel; equal kernels of two architectures are compiled twice all the same."""
    ((backend, _),) = workload.arranged(1)
    for kernel, module in backend.modules.items():
        if not module.entries:
            continue
        print(workload.name, kernel, file=sys.stderr)
        cells = [_words(resources_of(module, one)) for one in ARCHITECTURES]
        yield f"| {workload.name} | {kernel} | {len(module.entries)} | {' | '.join(cells)} |"


def _words(found: Resources) -> str:
    kib = -(-found.shared_bytes // 1024)
    return f"{found.n_registers}, {found.spilled_bytes}, {kib}"


if __name__ == "__main__":
    sys.exit(main())
