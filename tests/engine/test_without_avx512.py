"""The engine on a CPU without AVX-512: all tests with `make test CPU=avx2`, a few in every run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dynbatch.harness.compiler.object_code import get_host_target
from dynbatch.harness.engine.cpu_kernels.blas import prepare_libraries
from dynbatch.harness.engine.cpu_kernels.libraries import LIBRARY, ONEDNN
from dynbatch.harness.engine.cpu_kernels.vectors import LANES
from dynbatch.harness.measuring.processes import launch
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.values.paths import ROOT
from tests.support.measured import measure_alone
from tests.support.processes import end_python

PLUGIN = "tests.support.avx2_cpu"
HERE = "tests/engine/test_without_avx512.py"
CHOSEN = (
    f"{HERE}::test_the_plugin_leaves_no_wider_instructions",
    f"{HERE}::test_a_worker_multiplies_with_the_instructions_of_its_test",
    "tests/engine/test_products.py",
    "tests/engine/test_threads.py::"
    "test_machine_code_of_several_threads_repeats_itself_to_the_last_bit",
)


def test_the_plugin_leaves_no_wider_instructions(request: pytest.FixtureRequest) -> None:
    if not request.config.pluginmanager.has_plugin(PLUGIN):
        pytest.skip(f"{PLUGIN} is not loaded")
    from tests.support import avx2_cpu

    target = get_host_target()
    assert (target.cpu, "avx512" in target.features, LANES) == ("x86-64-v3", False, 8)
    assert torch.backends.cpu.get_cpu_capability() == "AVX2"
    assert avx2_cpu.VARIABLES.items() <= os.environ.items()
    assert all(map(launch._decides_numbers, avx2_cpu.VARIABLES)), "workers would keep others"
    assert ONEDNN is None or "(AVX2)" in ONEDNN.name
    assert LIBRARY is None or "OpenBLAS" not in LIBRARY.name or "(Haswell)" in LIBRARY.name


def test_a_worker_multiplies_with_the_instructions_of_its_test(
    make_spec: Callable[..., TrialSpec], tmp_path: Path
) -> None:
    spec = make_spec(system="vertex", adapter="dynbatch.systems.on_core.vertex", hidden_size=16)
    record = measure_alone(spec, tmp_path / "r0.json", tmp_path / "r0.log")
    assert record.status == "ok", record.reason
    assert record.effective_options["blas"] == prepare_libraries("auto", 1).names


def planned(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Return the commands of `make test`, regardless of the `make` that runs this test."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS")}
    command = ["make", "--dry-run", "test", *words]
    return subprocess.run(
        command, cwd=ROOT, env=inherited | environment, capture_output=True, text=True
    )


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_accepts_known_cpu_only_from_command_line() -> None:
    assert f"-p {PLUGIN} " in planned("CPU=avx2").stdout
    for found in (planned(), planned(CPU="x86_64")):  # as some shells export it
        assert (found.returncode, "-p tests." in found.stdout) == (0, False)
    found = planned("CPU=avx512")
    assert found.returncode == 2
    assert "CPU=avx512 is unknown; choose one of: avx2" in found.stderr
    assert len(found.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.skipif(LANES == 8, reason="the whole suite runs with 8 lanes here")
def test_products_and_threads_are_right_without_avx512() -> None:
    found = end_python("-m", "pytest", "-q", "-p", PLUGIN, "-p", "no:cacheprovider", *CHOSEN)
    assert found.returncode == 0, found.stdout[-4000:]
    assert HERE not in found.stdout, "a test of this file was skipped"
