"""Kernels of the CPU backend, called one by one on arrays of a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import Compiled
from dynbatch.harness.compiler.pointers import call, get_address
from dynbatch.harness.engine.cpu_kernels.blas import Scratch
from dynbatch.harness.engine.cpu_kernels.context import (
    FACTORS,
    LETTERS,
    N_TALLY,
    N_THREADS,
    N_WORDS,
    SIZES,
    TALLY,
    THREAD,
)


def drawn(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


class Reported:
    """Context of a single thread, which kernels get by its address, and its counters."""

    def __init__(self, thread: int = 0, n_threads: int = 1, scratch: Scratch | None = None) -> None:
        self.tally = np.zeros(N_TALLY, np.int64)
        self._words = np.zeros(N_WORDS, np.int64)
        self._words[[THREAD, N_THREADS, TALLY]] = thread, n_threads, get_address(self.tally)
        self._scratch = scratch
        if scratch is not None:
            self._words[[SIZES, LETTERS, FACTORS]] = list(map(get_address, scratch))
        self.address = get_address(self._words)


def run_kernel(
    kernel: Compiled[..., Any] | int,
    operands: Sequence[NDArray[Any]],
    constants: Sequence[int],
    n: int,
    reported: Reported | None = None,
) -> None:
    """Run a kernel, or the code at an address, for n rows; operands may be parts of wider rows."""
    reported = reported or Reported()
    places = np.array([(get_address(one), one.strides[0]) for one in operands], np.int64)
    words = np.array([*constants, 0], np.int64)
    address = kernel.address if isinstance(kernel, Compiled) else kernel
    call(address, (reported.address, get_address(places), get_address(words), n))
