"""Generated kernels compiled for an absent GPU: they compile and fit its processors.

Other processes find cached kernels, and compile damaged ones again.
"""

from __future__ import annotations

import json
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.engine.backends.cuda.model import KERNELS
from dynbatch.harness.engine.backends.cuda.triton_setup import FOLDER
from dynbatch.harness.machine.caches import NAME
from tests.support.processes import run_python

MAX_REGISTERS = 255  # per thread
MAX_SPILLED_BYTES = 40  # per thread and tile: what the loop over tiles saves around a call
MAX_SHARED_BYTES = 100 * 1024  # so that two programs fit a processor with 228 KiB

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(util.find_spec("triton") is None, reason="Triton is not installed"),
]


EXACT = "ieee"
WANTED = [*(f"{EXACT}:{kernel}" for kernel in KERNELS), "bf16:backward_lazy"]


@pytest.fixture(scope="module")
def resources() -> Any:
    """Return the resources of Tree-LSTM's kernels in training, hidden 256, on an H200.

    All kernels would take 26 s in the other precision. Their matmuls are written alike, so that
    only the kernel with the most shared memory is compiled, which takes 3 s.
    """
    printed = run_python("-m", "tests.support.offline_resources", *WANTED, TRITON_INTERPRET="0")
    return json.loads(printed.splitlines()[-1])


@pytest.mark.parametrize("kernel", WANTED)
def test_a_kernel_fits_an_h200(resources: Any, kernel: str) -> None:
    """No kind uses shared memory before a barrier, because the last call may still read it.

    See issue 11326 of triton-lang/triton.
    """
    found = resources[kernel]
    assert 0 < found["n_registers"] <= MAX_REGISTERS
    assert found["spilled_bytes"] <= MAX_SPILLED_BYTES or not kernel.startswith(EXACT)
    assert found["shared_bytes"] <= MAX_SHARED_BYTES
    assert found["guarded"]
    assert all(found["guarded"].values()), found["guarded"]


def test_missing_barriers_are_found(resources: Any) -> None:
    found = [kind for one in resources.values() for kind in one["guarded_without_barriers"].items()]
    assert sum(not is_guarded for _, is_guarded in found) > len(found) / 2


WAYS = ("run.json=empty", "run.cubin=a bit changed", "*.sha256=cut off")


def run(home: Path, *damages: str) -> list[str]:
    environment = {"TRITON_INTERPRET": "0", "XDG_CACHE_HOME": str(home)}
    return run_python("-m", "tests.support.small_kernel", *damages, **environment).splitlines()


def test_damaged_kernel_is_compiled_again_and_found_by_other_processes(tmp_path: Path) -> None:
    """Each damage is applied to the kernel that was compiled after the previous damage."""
    assert run(tmp_path, *WAYS) == ["compiled True"] * (1 + len(WAYS))
    assert run(tmp_path) == ["found True"]
    assert not list((tmp_path / NAME / FOLDER).rglob("*.tmp"))
