"""Launches of the CUDA backend as they reach the driver, through Triton's own launcher."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.values.paths import ROOT
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
    """Return what the launches were asked for, and what reached the stub."""
    log = tmp_path / "launches"
    own = {
        **{"LD_LIBRARY_PATH": str(library), "TRITON_LIBCUDA_PATH": str(library)},
        **{"TRITON_CACHE_DIR": str(library / "cache"), "TRITON_INTERPRET": "0"},
        **{"STUB_LOG": str(log), "STUB_ARGUMENTS": str(N_ARGUMENTS), "STUB_RESIDENT": "1000"},
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.stub_launches"],
        env=os.environ | own | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines() if log.exists() else []
    return json.loads(done.stdout), [json.loads(line) for line in lines]


def test_arguments_grid_and_kind_of_launch_reach_the_driver(library: Path, tmp_path: Path) -> None:
    """Only a persistent launch is cooperative, so that CUDA refuses a grid that could deadlock."""
    asked, (phase, persistent) = launch(library, tmp_path)
    assert "error" not in asked
    for one, name in ((phase, "phase"), (persistent, "persistent")):
        found = [
            got & LOW if wanted in (SLOT, PHASE) else got
            for got, wanted in zip(one["arguments"], asked[name], strict=True)
        ]
        assert found == asked[name]
        assert (one["grid"], one["threads"]) == (GRID, 128)
    assert (phase["cooperative"], persistent["cooperative"]) == (0, 1)


def test_a_grid_that_is_not_resident_is_refused(library: Path, tmp_path: Path) -> None:
    asked, launched = launch(library, tmp_path, STUB_RESIDENT="100")
    assert "too many blocks in cooperative launch" in asked["error"]
    assert not asked["is_out_of_memory"]
    assert [one["cooperative"] for one in launched] == [0]


def test_a_kernel_that_memory_has_no_room_for_is_out_of_memory(
    library: Path, tmp_path: Path
) -> None:
    asked, launched = launch(library, tmp_path, STUB_FULL="1")
    assert asked["is_out_of_memory"]
    assert launched == []
