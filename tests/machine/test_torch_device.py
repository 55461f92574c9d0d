"""The test of PyTorch's use of the GPU, which runs in a separate process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import dynbatch.harness.planning.nodes
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.machine import torch_device
from dynbatch.harness.machine.torch_device import ASKED, explain_unusable_gpu
from dynbatch.harness.planning.artifacts import build_choices
from dynbatch.harness.planning.nodes import check_machine
from tests.support.measured import MakeSpec

Patch = pytest.MonkeyPatch
Output = pytest.CaptureFixture[str]
Done = subprocess.CompletedProcess[str]
TRACEBACK = 'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\n'


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    explain_unusable_gpu.cache_clear()
    yield
    explain_unusable_gpu.cache_clear()


@pytest.mark.parametrize(
    ("code", "out", "error", "printed"),
    [
        (0, "\n", "", None),
        (0, "a warning\nit is built for CPUs\n", "", "it is built for CPUs"),
        (1, "", f"{TRACEBACK}ImportError: no torch\nhere\n", "PyTorch failed (ImportError: no t"),
    ],
)
def test_its_reason_is_one_line(
    monkeypatch: Patch, code: int, out: str, error: str, printed: str | None
) -> None:
    def run(command: Any, **_: Any) -> Done:
        assert command[-1] == ASKED
        return Done(command, code, out, error)

    monkeypatch.setattr(torch_device.subprocess, "run", run)
    found = explain_unusable_gpu()
    assert (found is None) == (printed is None)
    assert (found or "").startswith(printed or "")


def test_one_that_does_not_answer(monkeypatch: Patch) -> None:
    def run(command: Any, **_: Any) -> Done:
        raise subprocess.TimeoutExpired(command, 1.0)

    monkeypatch.setattr(torch_device.subprocess, "run", run)
    assert "did not report within" in str(explain_unusable_gpu())


def test_gpu_check_completes_on_current_machine() -> None:
    """Either result is correct on the machine that runs the tests, within the time limit."""
    printed = explain_unusable_gpu()
    assert printed is None or "PyTorch" in printed


def test_a_gpu_that_torch_can_use_is_the_default(monkeypatch: Patch) -> None:
    monkeypatch.setattr(dynbatch.harness.planning.nodes, "has_cuda_device", lambda: True)
    monkeypatch.setattr(dynbatch.harness.planning.nodes, "explain_unusable_gpu", lambda: None)
    choices = build_choices({}, {})
    assert (choices.device, choices.scale) == ("cuda", "medium")


def test_unusable_gpu_is_refused_unless_cpu_is_set(monkeypatch: Patch, make_spec: MakeSpec) -> None:
    reason = "expected a driver for CUDA 13.0, got 570.1 for CUDA 12.8"
    monkeypatch.setattr(dynbatch.harness.planning.nodes, "has_cuda_device", lambda: True)
    monkeypatch.setattr(dynbatch.harness.planning.nodes, "explain_unusable_gpu", lambda: reason)
    with pytest.raises(ConfigError, match="expected a driver for CUDA"):
        build_choices({}, {})
    with pytest.raises(ConfigError, match="expected a driver for CUDA"):
        check_machine(make_spec(device="cuda"))
    assert build_choices({"device": "cpu"}, {}).scale == "smoke"
    check_machine(make_spec())


@pytest.mark.parametrize(
    ("names", "has_gpu", "n_unused"),
    [
        (("torch", "nvidia-cublas", "nvidia-nccl-cu13", "cuda-bindings"), False, 3),
        (("torch", "nvidia-ml-py", None), False, 0),  # None: the remains of a package
        (("torch", "nvidia-cublas"), True, 0),
    ],
)
def test_libraries_that_nothing_here_uses_are_reported(
    monkeypatch: Patch, capsys: Output, names: tuple[str | None, ...], has_gpu: bool, n_unused: int
) -> None:
    files = [SimpleNamespace(size=2**29), SimpleNamespace(size=None)]
    packages = [SimpleNamespace(metadata={"Name": name}, files=files) for name in names]
    monkeypatch.setattr(torch_device, "has_cuda_device", lambda: has_gpu)
    monkeypatch.setattr(torch_device.importlib.metadata, "distributions", lambda: packages)
    assert torch_device.main() == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == bool(n_unused)
    if n_unused:
        assert f"{n_unused} packages of CUDA libraries, {n_unused / 2:.1f} GiB" in printed
        assert "make install TORCH_INDEX=cpu" in printed
