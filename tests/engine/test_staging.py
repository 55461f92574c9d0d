"""Uploads to the device: the host waits for a pinned buffer, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dynbatch.harness.engine.backends.cuda.launching import N_PINNED, Staging
from dynbatch.harness.engine.backends.cuda.words import Words

N_UPLOADS = 7


class SlowCopies(Staging):
    """Uploads whose copies are done, in order, when the host waits for one of them."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"), self.finish)
        self.waiting: list[Callable[[], object]] = []
        self.copied: list[Words] = []
        self.n_waits = 0

    def _start_copy(self, source: torch.Tensor, out: torch.Tensor) -> Any:
        self.waiting.append(partial(self._copy, source, out))
        end = len(self.copied) + len(self.waiting)
        return SimpleNamespace(synchronize=partial(self._reach, end))

    def _copy(self, source: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(source)
        self.copied.append(out.numpy().copy())

    def _reach(self, number: int) -> None:
        self.n_waits += 1
        while len(self.copied) < number:
            self.waiting.pop(0)()

    def finish(self) -> None:
        for copy in self.waiting:
            copy()
        self.waiting.clear()


class Careless(SlowCopies):
    """The same without a wait for a pinned buffer."""

    def _reach(self, number: int) -> None:
        self.n_waits += 1


def upload_all(staging: SlowCopies, sizes: list[int]) -> bool:
    """Return whether the device got every upload as it was."""
    uploads = [np.full(size, k, dtype=np.int32) for k, size in enumerate(sizes)]
    for words in uploads:
        staging.upload([words])
    staging.finish()
    return all(
        np.array_equal(found[1:], words)
        for found, words in zip(staging.copied, uploads, strict=True)
    )


@pytest.mark.parametrize(
    "sizes", [[3] * N_UPLOADS, [3, 9, 2, 40, 40, 7, 100]], ids=["same", "grow"]
)
def test_every_upload_reaches_the_device(sizes: list[int]) -> None:
    staging = SlowCopies()
    assert upload_all(staging, sizes)
    assert staging.n_uploads == N_UPLOADS
    assert staging.n_waits == N_UPLOADS - N_PINNED


def test_the_wait_for_a_pinned_buffer_is_needed() -> None:
    assert not upload_all(Careless(), [3] * N_UPLOADS)
