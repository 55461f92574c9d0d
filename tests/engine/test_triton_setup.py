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


@pytest.mark.parametrize(
    ("program", "timeout_s", "words"),
    [
        ("import sys; sys.exit('Failed to find C compiler')", 60.0, "(Failed to find C compiler)"),
        ("import os; os.abort()", 60.0, "exit code -6"),
        ("import time; time.sleep(60)", 0.05, "no result after"),
    ],
)
def test_the_reason_for_a_failure_is_named(
    monkeypatch: pytest.MonkeyPatch, program: str, timeout_s: float, words: str
) -> None:
    monkeypatch.setattr(triton_setup, "TIMEOUT_S", timeout_s)
    assert words in str(run_kernel_apart([sys.executable, "-c", program]))


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
