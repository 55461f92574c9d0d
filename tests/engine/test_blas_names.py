"""What libraries that multiply tell of themselves, in words."""

from __future__ import annotations

import pytest

from harness.engine.cpu_kernels.libraries import numpy_blas_name, onednn_kernels, openblas_words


@pytest.mark.parametrize(
    ("told", "name"),
    [
        (
            "OpenBLAS 0.3.30  USE64BITINT DYNAMIC_ARCH NO_AFFINITY SkylakeX MAX_THREADS=64",
            "OpenBLAS 0.3.30 (SkylakeX)",
        ),
        ("OpenBLAS 0.3.29.dev Haswell MAX_THREADS=2", "OpenBLAS 0.3.29.dev (Haswell)"),
        ("OpenBLAS by  somebody", "OpenBLAS by somebody"),
        ("", "OpenBLAS"),
    ],
)
def test_openblas_tells_version_and_kernels(told: str, name: str) -> None:
    assert openblas_words(told) == name


class Telling:
    """A loaded library that takes these instructions."""

    def __init__(self, code: int) -> None:
        self.code = code

    def dnnl_get_effective_cpu_isa(self) -> int:
        return self.code


def test_onednn_tells_its_instructions() -> None:
    assert onednn_kernels(Telling(0x7)) == "AVX2"
    assert onednn_kernels(Telling(0xFEF)) == "AVX-512 AMX"
    assert onednn_kernels(Telling(0xABC)) == "0xabc", "newer ones have a number"
    assert onednn_kernels(object()) == "?", "an old library does not tell"


def test_numpy_has_something_to_multiply_with() -> None:
    name = numpy_blas_name()
    assert name.split()[1:], f"{name} names no version"
