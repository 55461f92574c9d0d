"""Check that Triton works before trials: reasons, and a stored success."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from dynbatch.harness.engine.backends.cuda import triton_setup
from dynbatch.harness.engine.backends.cuda.triton_setup import (
    explain_failing_kernel,
    run_kernel_apart,
)


def test_the_last_line_of_a_failing_process_is_the_reason() -> None:
    program = "import sys; print('Failed to find C compiler', file=sys.stderr); sys.exit(1)"
    reason = run_kernel_apart([sys.executable, "-c", program])
    assert reason is not None
    assert "(Failed to find C compiler)" in reason
    assert "backend=stepwise" in reason


def test_a_crash_without_a_message_is_a_reason() -> None:
    reason = run_kernel_apart([sys.executable, "-c", "import os; os.abort()"])
    assert reason is not None
    assert "exit code -6" in reason


def test_a_process_that_hangs_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_setup, "TIMEOUT_S", 0.05)
    reason = run_kernel_apart([sys.executable, "-c", "import time; time.sleep(60)"])
    assert reason is not None
    assert "no result after" in reason


def test_only_a_success_is_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A compiler may be installed later, and a GPU that others use is asked again."""
    answers: list[str | None] = ["CUDA out of memory", "no compiler", None]
    monkeypatch.setattr(triton_setup, "run_kernel_apart", lambda _: answers.pop(0))
    monkeypatch.setattr(triton_setup, "make_user_folder", lambda _: tmp_path)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert [explain_failing_kernel() for _ in range(4)] == [None, "no compiler", None, None]
    assert answers == []
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "another GPU")
    with pytest.raises(IndexError):
        explain_failing_kernel()  # a stored success is of one GPU
