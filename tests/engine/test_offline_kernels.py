"""Generated kernels compiled for an absent GPU: they compile and fit its processors.

Other processes find cached kernels, and compile damaged ones again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.engine.backends.cuda.model import KERNELS
from dynbatch.harness.engine.backends.cuda.triton_setup import FOLDER
from dynbatch.harness.machine.caches import NAME
from dynbatch.harness.values.paths import ROOT

MAX_REGISTERS = 255  # per thread
MAX_SPILLED_BYTES = 40  # per thread and tile: what the loop over tiles saves around a call
MAX_SHARED_BYTES = 100 * 1024  # so that two programs fit a processor with 228 KiB

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(util.find_spec("triton") is None, reason="Triton is not installed"),
]


EXACT, HALF = "ieee", "bf16"


@pytest.fixture(scope="module")
def resources() -> Any:
    """Return the resources of Tree-LSTM's kernels in training, hidden 256, on an H200.

    All kernels would take 26 s in the other precision. Their matmuls are written alike, so that
    only the kernel with the most shared memory is compiled, which takes 3 s.
    """
    wanted = [*(f"{EXACT}:{kernel}" for kernel in KERNELS), f"{HALF}:backward_lazy"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.offline_resources", *wanted],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_a_kernel_of_another_precision_fits_an_h200(resources: Any) -> None:
    found = resources[f"{HALF}:backward_lazy"]
    assert 0 < found["n_registers"] <= MAX_REGISTERS
    assert found["shared_bytes"] <= MAX_SHARED_BYTES


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_fits_an_h200(resources: Any, kernel: str) -> None:
    found = resources[f"{EXACT}:{kernel}"]
    assert 0 < found["n_registers"] <= MAX_REGISTERS
    assert found["spilled_bytes"] <= MAX_SPILLED_BYTES
    assert found["shared_bytes"] <= MAX_SHARED_BYTES


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_kind_uses_shared_memory_before_a_barrier(resources: Any, kernel: str) -> None:
    """The last call may still read it: triton-lang/triton, issue 11326."""
    found = resources[f"{EXACT}:{kernel}"]["guarded"]
    assert found
    assert all(found.values()), found


def test_missing_barriers_are_found(resources: Any) -> None:
    found = [kind for one in resources.values() for kind in one["guarded_without_barriers"].items()]
    assert sum(not is_guarded for _, is_guarded in found) > len(found) / 2


WAYS = ("run.json=empty", "run.cubin=a bit changed", "*.sha256=cut off")


def run(home: Path, *damages: str) -> list[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.small_kernel", *damages],
        cwd=ROOT,
        env=environment | {"XDG_CACHE_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_damaged_kernel_is_compiled_again_and_found_by_other_processes(tmp_path: Path) -> None:
    """Each damage is applied to the kernel that was compiled after the previous damage."""
    assert run(tmp_path, *WAYS) == ["compiled True"] * (1 + len(WAYS))
    assert run(tmp_path) == ["found True"]
    assert not list((tmp_path / NAME / FOLDER).rglob("*.tmp"))
