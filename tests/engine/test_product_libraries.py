"""Names and versions that libraries of matmuls report of themselves."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from dynbatch.harness.engine.backend import choose_backend
from dynbatch.harness.engine.cpu_kernels.blas import OWN, make_blas_scratch
from dynbatch.harness.engine.cpu_kernels.libraries import (
    LIBRARY,
    describe_numpy_blas,
    find_onednn_kernels,
    parse_openblas_name,
)
from dynbatch.harness.engine.cpu_kernels.vectors import NAMES, load_matmul_kernels
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.harness.values.precision import EXACT, PRECISIONS


def reporting(code: int) -> SimpleNamespace:
    """Return a loaded library that reports this instruction set."""
    return SimpleNamespace(dnnl_get_effective_cpu_isa=lambda: code)


def test_libraries_tell_versions_and_kernels() -> None:
    reported = "OpenBLAS 0.3.30  USE64BITINT DYNAMIC_ARCH NO_AFFINITY SkylakeX MAX_THREADS=64"
    assert parse_openblas_name(reported) == "OpenBLAS 0.3.30 (SkylakeX)"
    assert parse_openblas_name("OpenBLAS by  somebody") == "OpenBLAS by somebody"
    assert parse_openblas_name("") == "OpenBLAS"
    found = [find_onednn_kernels(reporting(code)) for code in (0x7, 0xFEF)]
    assert found == ["AVX2", "AVX-512 AMX"]
    assert find_onednn_kernels(reporting(0xABC)) == "0xabc", "newer ones have a number"
    assert find_onednn_kernels(object()) == "?", "an old library does not tell"
    assert describe_numpy_blas().split()[1:], "it names a version"


@pytest.mark.skipif(LIBRARY is None, reason="no library shows an sgemm")
def test_the_table_of_kernels_lives_as_long_as_its_address_may_be_stored() -> None:
    """Scratch arrays keep only the address, and a cleared cache must not free the table."""
    load_matmul_kernels.cache_clear()
    address = int(make_blas_scratch(LIBRARY, own=True)[0][OWN])
    words = (ctypes.c_int64 * len(NAMES)).from_address(address)
    before = list(words)
    load_matmul_kernels.cache_clear()
    taken = [np.full(len(NAMES), -1, dtype=np.int64) for _ in range(64)]  # memory that was freed
    assert list(words) == before
    assert len(taken) == 64


@pytest.mark.parametrize("precision", sorted({*PRECISIONS} - {EXACT}))
def test_only_exact_matmuls_run_on_a_cpu(precision: str) -> None:
    with pytest.raises(UnsupportedTrial, match=f"precision={precision} needs backend=cuda"):
        choose_backend(Switches(backend="compiled", precision=precision), "cpu")
