"""PyTorch backend: waits for the device, unusable GPUs or Triton, and exhausted memory.

Torch's device `meta` has shapes but no values. An operator that needs a value to continue, for
which the host would wait for a GPU, fails there.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dynbatch.harness.engine import torch_cuda
from dynbatch.harness.engine.backend import Backend
from dynbatch.harness.engine.backends.cuda import backend as cuda
from dynbatch.harness.engine.backends.cuda import memory, triton_setup
from dynbatch.harness.engine.backends.cuda.backend import explain_unsupported_gpu
from dynbatch.harness.engine.backends.stepwise import backend as stepwise
from dynbatch.harness.engine.backends.stepwise import rows
from dynbatch.harness.engine.torch_cuda import explain_no_cuda, main
from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.harness.machine.facts import GpuReading
from dynbatch.harness.measuring.processes.child import is_out_of_memory
from tests.support.engine_models import EXAMPLES, example
from tests.support.engine_runs import Setting
from tests.support.walked_backend import PoisonedMemory, WalkedBackend


class Transfers(TorchDispatchMode):
    """Mode that counts copies from host to device, and rejects the opposite direction."""

    def __init__(self) -> None:
        super().__init__()
        self.n_uploads = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        given = [one.device.type for one in args if isinstance(one, torch.Tensor)]
        if isinstance(found, torch.Tensor) and given:
            assert not (found.device.type == "cpu" and "meta" in given), func
            self.n_uploads += found.device.type == "meta" and "cpu" in given
        return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_mini_batch_is_one_upload_and_nobody_waits(name: str) -> None:
    setting = Setting(name, kind=stepwise.Backend, device="meta")
    instances = setting.instances
    for part in (instances, instances[:1], instances * 3):
        mini_batch = setting.model.mini_batch(part)
        with Transfers() as transfers:
            setting.arrange(mini_batch)
            assert transfers.n_uploads == 1
            setting.engine.forward()
            setting.engine.backward()
            setting.engine.update(0.1)
            assert transfers.n_uploads == 1


def test_an_operator_that_needs_a_value_fails_on_this_device() -> None:
    """Earlier versions used it for edges to children, so the test above detects its use."""
    counts = torch.tensor([2, 1], device="meta")
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.repeat_interleave(counts)


NO_CODE = "CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors"


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that simulates a PyTorch build and a GPU."""

    def as_if(
        cuda: str | None = "13.0",
        sees: bool = True,
        error: Exception | None = None,
        capability: Any = (9, 0),
        driver: Any = ("535.54", (12, 2)),
        processes: tuple[int, ...] | None = (),  # that use the GPU; None if it cannot be read
    ) -> None:
        def ones(*_: Any, **__: Any) -> torch.Tensor:
            if error is not None:
                raise error
            return torch.zeros(1)

        reading = None if processes is None else GpuReading(None, False, {}, processes)
        monkeypatch.setattr(torch_cuda, "read_gpu", lambda: reading)
        monkeypatch.setattr(torch_cuda, "describe_driver", lambda: driver)
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: sees)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A GPU")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_80"])
        monkeypatch.setattr(torch, "ones", ones)

    return as_if


FULL = torch.OutOfMemoryError("CUDA out of memory")
BUSY = RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable")
NONE_VISIBLE = RuntimeError("No CUDA GPUs are available")
# A build and a GPU, and why this process cannot use it.
REASONS: list[tuple[dict[str, Any], str | None]] = [
    (
        {"cuda": None},
        "is built for CPUs: expected a build for CUDA (driver: 535.54 for CUDA 12.2); run make",
    ),
    ({"cuda": None, "driver": None}, "(driver: none); install NVIDIA's driver, or"),
    # What was found, what is needed, and a build that fits.
    (
        {"sees": False},
        " finds no usable GPU: expected a driver for CUDA 13.0, got 535.54 for CUDA 12.2;"
        " run make install TORCH_INDEX=cu126, or set device=cpu",
    ),
    # A driver for CUDA 13.1 is one for builds of CUDA 13.2, too.
    (
        {"cuda": "13.2", "sees": False, "driver": ("590.1", (13, 1)), "error": NONE_VISIBLE},
        " finds no usable GPU (No CUDA GPUs are available), but the driver fits: 590.1 for CUDA"
        " 13.1; check CUDA_VISIBLE_DEVICES and nvidia-smi, or set device=cpu",
    ),
    (
        {"error": RuntimeError(NO_CODE)},
        "cannot compute on A GPU (CUDA error: no kernel image is available for execution on the"
        " device): expected a build for sm_90, got one for sm_75, sm_80; choose another of"
        " PyTorch's indices in make install TORCH_INDEX=INDEX, or set device=cpu",
    ),
    ({"error": FULL, "processes": (7,)}, None),
    ({"error": BUSY, "processes": (7,)}, None),
    # In a mode that lets no process use it.
    ({"error": BUSY, "processes": None}, "busy or unavailable); check CUDA_VISIBLE_DEVICES and"),
    ({}, None),
]


@pytest.mark.parametrize(("changes", "reason"), REASONS)
def test_the_reason_why_torch_cannot_use_a_gpu_is_one_line(
    pretend: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    reason: str | None,
) -> None:
    pretend(**changes)
    found = explain_no_cuda()
    assert (found is None) == (reason is None)
    assert (reason or "") in (found or "")
    assert main() == 0
    assert capsys.readouterr().out == f"{found or ''}\n"


@pytest.mark.parametrize("answer", [None, "no C compiler"])
def test_a_kernel_is_compiled_and_run_apart(
    pretend: Callable[..., None], monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    pretend()
    cuda._explain_failing_kernel_once.cache_clear()
    monkeypatch.setattr(cuda, "explain_failing_kernel", lambda: answer)
    assert explain_unsupported_gpu() == answer


@pytest.mark.parametrize("capability", [(7, 5), (13, 0)])
def test_a_generation_that_kernels_are_not_for(
    pretend: Callable[..., None], capability: tuple[int, int]
) -> None:
    pretend(capability=capability)
    printed = str(explain_unsupported_gpu())
    assert f"got {capability[0]}.{capability[1]} (A GPU); use backend=stepwise" in printed


@pytest.mark.parametrize(
    ("program", "timeout_s", "words"),
    [
        ("import sys; sys.exit('Failed to find C compiler')", 60.0, "(Failed to find C compiler)"),
        (f"raise RuntimeError({NO_CODE!r})", 60.0, "(RuntimeError: CUDA error: no kernel image"),
        ("import os; os.abort()", 60.0, "exit code -6"),
        ("import time; time.sleep(60)", 0.05, "no result after"),
    ],
)
def test_the_reason_for_a_failure_is_named(
    monkeypatch: pytest.MonkeyPatch, program: str, timeout_s: float, words: str
) -> None:
    monkeypatch.setattr(triton_setup, "TIMEOUT_S", timeout_s)
    assert words in str(triton_setup.run_kernel_apart([sys.executable, "-c", program]))


def test_only_a_success_is_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A compiler may be installed later, and a GPU that others use is asked again."""
    answers: list[str | None] = ["CUDA out of memory", "no compiler", None]
    monkeypatch.setattr(triton_setup, "run_kernel_apart", lambda _: answers.pop(0))
    monkeypatch.setattr(triton_setup, "make_user_folder", lambda _: tmp_path)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    found = [triton_setup.explain_failing_kernel() for _ in range(4)]
    assert found == [None, "no compiler", None, None]
    assert answers == []
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "another GPU")
    with pytest.raises(IndexError):
        triton_setup.explain_failing_kernel()  # a stored success is of one GPU


MAX_ROWS = 40
REFUSAL = "CUDA out of memory. Tried to allocate 2.00 GiB"
KINDS = (WalkedBackend, stepwise.Backend)


class Room:
    """Allocator that rejects arrays with too many rows, and calls torch's for others."""

    def __init__(self, allocate: Callable[..., torch.Tensor]) -> None:
        self.allocate, self.most_rows = allocate, MAX_ROWS
        self.n_refused = 0
        self.before: Callable[[], None] = lambda: None  # called before every array of several rows
        self.given: list[weakref.ref[torch.Tensor]] = []

    def __call__(self, *shape: int) -> torch.Tensor:
        if shape[0] > 1:
            self.before()
        if shape[0] > self.most_rows:
            self.n_refused += 1
            raise torch.OutOfMemoryError(REFUSAL)
        found = self.allocate(*shape)
        self.given.append(weakref.ref(found))
        return found


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    """Return an allocator that both backends use."""
    found = Room(lambda *shape: torch.full(shape, float("nan")))
    monkeypatch.setattr(PoisonedMemory, "allocate", lambda _, *shape: found(*shape))
    monkeypatch.setattr(rows, "allocate", lambda shape, device: found(*shape))
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["tree_lstm", "child_sum"])
def test_smaller_batch_succeeds_after_out_of_memory(
    room: Room, name: str, kind: type[Backend]
) -> None:
    setting = Setting(name, kind=kind)
    small, large = setting.instances[:1], setting.instances * 20
    assert setting.wrong(small) == []
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError) as error:
            setting.train(large)
        assert is_out_of_memory(error.value)
        assert setting.wrong(small) == []
    assert room.n_refused == 2
    room.most_rows = 10**6
    assert setting.wrong(large, 2e-4) == []


@pytest.mark.parametrize("kind", KINDS)
def test_array_is_released_before_larger_one_is_allocated(room: Room, kind: type[Backend]) -> None:
    """Both may not fit, even if the larger one does."""
    room.most_rows = 10**6
    setting = Setting("tree_lstm", kind=kind)
    setting.train(setting.instances)
    old = list(room.given)
    seen: list[int] = []

    def look() -> None:
        seen.append(sum(one() is not None for one in old))

    room.before = look
    setting.train(setting.instances * 20)
    look()
    assert all(before > after for before, after in pairwise(seen[:-1]))
    assert seen[-1] == seen[-2] < seen[0]  # old arrays are freed before new ones are allocated


def test_uncountable_work_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many parameters are rejected before any computation, and too many rows per mini-batch."""
    largest = max(weight.size for weight in example("tree_lstm")[2].values())
    monkeypatch.setattr(memory, "MAX_ELEMENTS", largest - 1)
    with pytest.raises(UnsupportedTrial, match=rf"{largest}; set a smaller hidden_size, or"):
        Setting("tree_lstm", kind=WalkedBackend)
    monkeypatch.setattr(memory, "MAX_ELEMENTS", largest)
    setting = Setting("tree_lstm", kind=WalkedBackend)
    with pytest.raises(UnsupportedTrial, match="set a smaller batch_size, or use backend=stepwise"):
        setting.train(setting.instances * largest)


@pytest.mark.parametrize(
    ("words", "is_meant"),
    [
        ("CUDA error: out of memory", True),
        ("Triton Error [CUDA]: out of memory", True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("out of resource: shared memory, Required: 300000", False),
    ],
)
def test_words_of_cuda_that_mean_it(words: str, is_meant: bool) -> None:
    assert is_out_of_memory(RuntimeError(words)) == is_meant
