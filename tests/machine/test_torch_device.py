"""The test of PyTorch's use of the GPU, which runs in a separate process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

import dynbatch.harness.planning.nodes
from dynbatch.harness.machine import torch_device
from dynbatch.harness.machine.torch_device import ASKED, explain_unusable_gpu
from dynbatch.harness.planning.artifacts import build_choices

Done = subprocess.CompletedProcess[str]


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
        (1, "", "Traceback\nImportError: no torch\n", "PyTorch failed (ImportError: no t"),
    ],
)
def test_its_reason_is_one_line(
    monkeypatch: pytest.MonkeyPatch, code: int, out: str, error: str, printed: str | None
) -> None:
    def run(command: Any, **_: Any) -> Done:
        assert command[-1] == ASKED
        return Done(command, code, out, error)

    monkeypatch.setattr(torch_device.subprocess, "run", run)
    found = explain_unusable_gpu()
    assert (found is None) == (printed is None)
    assert (found or "").startswith(printed or "")


def test_one_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: Any, **_: Any) -> Done:
        raise subprocess.TimeoutExpired(command, 1.0)

    monkeypatch.setattr(torch_device.subprocess, "run", run)
    assert "did not report within" in str(explain_unusable_gpu())


def test_gpu_check_completes_on_current_machine() -> None:
    """Either result is correct on the machine that runs the tests, within the time limit."""
    printed = explain_unusable_gpu()
    assert printed is None or "PyTorch" in printed


@pytest.mark.parametrize(
    ("reason", "device", "scale"), [(None, "cuda", "paper"), ("built for CPUs", "cpu", "smoke")]
)
def test_sizes_are_those_of_the_device_that_torch_can_use(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reason: str | None,
    device: str,
    scale: str,
) -> None:
    monkeypatch.setattr(dynbatch.harness.planning.nodes, "has_cuda_device", lambda: True)
    monkeypatch.setattr(dynbatch.harness.planning.nodes, "explain_unusable_gpu", lambda: reason)
    choices = build_choices({}, {})
    assert (choices.device, choices.scale) == (device, scale)
    printed = capsys.readouterr().err
    assert printed.count("\n") == (0 if reason is None else 1)
    assert (reason or "") in printed
