"""A GPU that PyTorch cannot use is told in one line: which build it is, and what to install."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from harness.engine.backends.cuda.backend import why_not_on_this_gpu
from harness.engine.torch_cuda import main, why_no_cuda

NO_CODE = "CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors"


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A PyTorch for some CUDA that sees a GPU, computes on it or fails, of some capability."""

    def as_if(
        cuda: str | None = "12.8",
        sees: bool = True,
        error: Exception | None = None,
        capability: Any = (9, 0),
    ) -> None:
        def ones(*_: Any, **__: Any) -> torch.Tensor:
            if error is not None:
                raise error
            return torch.zeros(1)

        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: sees)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A GPU")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
        monkeypatch.setattr(torch, "ones", ones)

    return as_if


def test_a_build_for_cpus(pretend: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    pretend(cuda=None)
    assert "is built for CPUs; install a build of it for CUDA" in str(why_no_cuda())
    assert main() == 0
    assert capsys.readouterr().out.strip() == why_no_cuda()


def test_a_driver_that_is_too_old(pretend: Callable[..., None]) -> None:
    pretend(sees=False)
    assert "new enough for CUDA 12.8" in str(why_no_cuda())


def test_a_gpu_that_the_build_has_no_code_for(pretend: Callable[..., None]) -> None:
    pretend(error=RuntimeError(NO_CODE))
    said = str(why_no_cuda())
    assert "cannot compute on A GPU (CUDA error: no kernel image" in said
    assert "\n" not in said


def test_a_gpu_that_can_be_used(
    pretend: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    pretend()
    assert why_no_cuda() is None
    assert why_not_on_this_gpu() is None
    assert main() == 0
    assert capsys.readouterr().out.strip() == ""


def test_a_gpu_whose_memory_others_have_can_be_used(pretend: Callable[..., None]) -> None:
    pretend(error=torch.OutOfMemoryError("CUDA out of memory"))
    assert why_no_cuda() is None


@pytest.mark.parametrize("capability", [(7, 5), (13, 0)])
def test_a_generation_that_kernels_are_not_for(
    pretend: Callable[..., None], capability: tuple[int, int]
) -> None:
    pretend(capability=capability)
    said = str(why_not_on_this_gpu())
    assert f"A GPU has {capability[0]}.{capability[1]}; use backend=stepwise" in said
