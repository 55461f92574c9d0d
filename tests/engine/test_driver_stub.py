"""Launches of the CUDA backend as they reach the driver, through Triton's own launcher."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.values.paths import ROOT
from tests.support.processes import run_python
from tests.support.stub_launches import GRID, PHASE, SLOT

STUB = ROOT / "tests" / "support" / "stub_cuda.c"
N_ARGUMENTS = 5
LOW = 2**32 - 1  # a 32-bit argument is the lower half of its word


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the stub, compiled."""
    compiler, triton = shutil.which("gcc"), util.find_spec("triton")
    if compiler is None or triton is None or triton.origin is None:
        pytest.skip("Triton's launcher needs gcc")
    headers = Path(triton.origin).parent / "backends" / "nvidia" / "include"
    folder = tmp_path_factory.mktemp("stub")
    out = ["-o", str(folder / "libcuda.so.1")]
    subprocess.run([compiler, "-shared", "-fPIC", f"-I{headers}", str(STUB), *out], check=True)
    return folder


def launch(library: Path, tmp_path: Path, **environment: str) -> tuple[dict[str, Any], list[Any]]:
    """Return what the launch was asked for, and what reached the stub."""
    log = tmp_path / "launches"
    own = {
        **{"LD_LIBRARY_PATH": str(library), "TRITON_LIBCUDA_PATH": str(library)},
        **{"TRITON_CACHE_DIR": str(library / "cache"), "TRITON_INTERPRET": "0"},
        **{"STUB_LOG": str(log), "STUB_ARGUMENTS": str(N_ARGUMENTS)},
    }
    asked = json.loads(run_python("-m", "tests.support.stub_launches", **own, **environment))
    lines = log.read_text().splitlines() if log.exists() else []
    return asked, [json.loads(line) for line in lines]


def test_arguments_and_grid_reach_the_driver(library: Path, tmp_path: Path) -> None:
    asked, (launched,) = launch(library, tmp_path)
    assert "error" not in asked
    found = [
        got & LOW if wanted in (SLOT, PHASE) else got
        for got, wanted in zip(launched["arguments"], asked["arguments"], strict=True)
    ]
    assert found == asked["arguments"]
    assert (launched["grid"], launched["threads"]) == (GRID, 128)


def test_a_kernel_that_memory_has_no_room_for_is_out_of_memory(
    library: Path, tmp_path: Path
) -> None:
    asked, launched = launch(library, tmp_path, STUB_FULL="1")
    assert asked["is_out_of_memory"]
    assert launched == []
