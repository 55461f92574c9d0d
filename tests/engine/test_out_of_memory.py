"""A device that has no room: told as such, and whatever fits is computed as if nothing had been."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

import harness.engine.engine
from harness.engine.backend import Backend
from harness.engine.backends.cuda import memory
from harness.engine.backends.stepwise import backend as stepwise
from harness.engine.backends.stepwise import rows
from harness.errors import UnsupportedTrial
from harness.measuring.child import is_out_of_memory
from harness.oracle import run_reference
from tests.support.engine_models import EXAMPLES, example
from tests.support.engine_setting import Setting
from tests.support.walked_backend import PoisonedMemory, WalkedBackend

MOST_ROWS = 40
REFUSAL = "CUDA out of memory. Tried to allocate 2.00 GiB"
KINDS = (WalkedBackend, stepwise.Backend)


class Room:
    """How many rows an array may have; asks torch's allocator for the rest."""

    def __init__(self, allocate: Callable[..., torch.Tensor]) -> None:
        self.allocate, self.most_rows = allocate, MOST_ROWS
        self.n_refused = 0
        self.before: Callable[[], None] = lambda: None  # of every array that is more than a place
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
    """Of both backends."""
    found = Room(lambda *shape: torch.full(shape, float("nan")))
    monkeypatch.setattr(PoisonedMemory, "empty", lambda _, *shape: found(*shape))
    monkeypatch.setattr(rows, "empty", lambda shape, device: found(*shape))
    return found


def is_right(setting: Setting, instances: list[Any], name: str) -> bool:
    loss = setting.train(instances)
    oracle = run_reference(EXAMPLES[name][0], setting.weights, instances, "train")
    found = setting.backend.gradients()
    pairs = [(loss, oracle.loss), *((found[k], g) for k, g in oracle.gradients.items())]
    return all(np.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in pairs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["tree_lstm", "child_sum"])
def test_what_fits_is_computed_after_what_did_not(
    monkeypatch: pytest.MonkeyPatch, room: Room, name: str, kind: type[Backend]
) -> None:
    monkeypatch.setattr(harness.engine.engine, "choose_backend", lambda *_: kind)
    setting = Setting(name)
    small, large = setting.instances[:1], setting.instances * 20
    assert is_right(setting, small, name)
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError) as error:
            setting.train(large)
        assert is_out_of_memory(error.value)
        assert is_right(setting, small, name)
    assert room.n_refused == 2
    room.most_rows = 10**6
    assert is_right(setting, large, name)


@pytest.mark.parametrize("kind", KINDS)
def test_an_array_is_given_up_before_a_larger_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, room: Room, kind: type[Backend]
) -> None:
    """Both together may not fit where the larger one does."""
    monkeypatch.setattr(harness.engine.engine, "choose_backend", lambda *_: kind)
    room.most_rows = 10**6
    setting = Setting("tree_lstm")
    setting.train(setting.instances)
    old = list(room.given)
    seen: list[int] = []

    def look() -> None:
        seen.append(sum(one() is not None for one in old))

    room.before = look
    setting.train(setting.instances * 20)
    look()
    assert all(before > after for before, after in pairwise(seen[:-1]))
    assert seen[-1] == seen[-2] < seen[0]  # nothing went only after what took its place was there


def test_what_kernels_cannot_count_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of parameters before anything is computed, of rows when a mini-batch has too many."""
    monkeypatch.setattr(harness.engine.engine, "choose_backend", lambda *_: WalkedBackend)
    largest = max(weight.size for weight in example("tree_lstm")[2].values())
    monkeypatch.setattr(memory, "MOST_ELEMENTS", largest - 1)
    with pytest.raises(UnsupportedTrial, match=rf"{largest} elements.* smaller hidden_size, or"):
        Setting("tree_lstm")
    monkeypatch.setattr(memory, "MOST_ELEMENTS", largest)
    setting = Setting("tree_lstm")
    with pytest.raises(UnsupportedTrial, match="give a smaller batch_size, or use backend=stepwis"):
        setting.train(setting.instances * largest)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError(REFUSAL),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_words_of_cuda_that_mean_it(error: Exception) -> None:
    assert is_out_of_memory(error)


def test_other_words_of_cuda_do_not() -> None:
    assert not is_out_of_memory(RuntimeError("out of resource: shared memory, Required: 300000"))
