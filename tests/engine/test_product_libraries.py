"""Names and versions that libraries of matmuls report of themselves."""

from __future__ import annotations

from harness.engine.cpu_kernels.libraries import (
    describe_numpy_blas,
    find_onednn_kernels,
    parse_openblas_name,
)


class Telling:
    """A loaded library that reports this instruction set."""

    def __init__(self, code: int) -> None:
        self.code = code

    def dnnl_get_effective_cpu_isa(self) -> int:
        return self.code


def test_libraries_tell_versions_and_kernels() -> None:
    told = "OpenBLAS 0.3.30  USE64BITINT DYNAMIC_ARCH NO_AFFINITY SkylakeX MAX_THREADS=64"
    assert parse_openblas_name(told) == "OpenBLAS 0.3.30 (SkylakeX)"
    assert parse_openblas_name("OpenBLAS by  somebody") == "OpenBLAS by somebody"
    assert parse_openblas_name("") == "OpenBLAS"
    assert [find_onednn_kernels(Telling(code)) for code in (0x7, 0xFEF)] == ["AVX2", "AVX-512 AMX"]
    assert find_onednn_kernels(Telling(0xABC)) == "0xabc", "newer ones have a number"
    assert find_onednn_kernels(object()) == "?", "an old library does not tell"
    assert describe_numpy_blas().split()[1:], "it names a version"
