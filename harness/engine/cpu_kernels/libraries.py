"""The libraries that multiply, found and called by address.

OpenBLAS, which NumPy brings, or else a BLAS that the system has; and oneDNN (Intel's, which PyTorch
uses too), whose products of a batch's few rows are the fastest there are: 64 and 32 rows by weights
of 256 x 1 024 run at 207 and 204 GFLOP/s on one Zen 5 core, and at 150 with OpenBLAS at its best.
Or, to compare with PyTorch by equal products, the MKL inside PyTorch, which is not imported for it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path
from typing import Any

import numpy as np

from harness.machine.blas_names import onednn_kernels, openblas_name

ONEDNN_PACKAGE = "onednn-cpu-gomp"
SMALL = 10**6  # multiplications in OpenBLAS's largest small product
SMALL_CORES = (b"SkylakeX", b"Cooperlake", b"SapphireRapids")


@dataclass(frozen=True, slots=True)
class Library:
    """An sgemm with Fortran's arguments.

    address: of the function. limit: the largest product to hand it at once, 0 for any.
    """

    name: str
    address: int
    limit: int
    set_threads: Callable[[int], object]


def _openblas() -> Library | None:
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    for path in sorted(folder.glob("libscipy_openblas64_*")):
        try:
            library = ctypes.CDLL(str(path))
            function, set_threads = (
                library.scipy_sgemm_64_,
                library.scipy_openblas_set_num_threads64_,
            )
            core = library.scipy_openblas_get_corename64_
        except (OSError, AttributeError):
            continue
        core.restype = ctypes.c_char_p
        limit = SMALL if core() in SMALL_CORES else 0
        return Library(openblas_name(library), _address(function), limit, set_threads)
    return None


def _system_blas() -> Library | None:
    """One that is installed apart from NumPy, where NumPy brings none (as conda's does not)."""
    for name, setter in (
        ("openblas", "openblas_set_num_threads"),
        ("mkl_rt", "MKL_Set_Num_Threads"),
        ("blas", ""),
    ):
        path = ctypes.util.find_library(name)
        try:
            library = ctypes.CDLL(path) if path else None
            function = library.sgemm_ if library else None
        except (OSError, AttributeError):
            continue
        if function is not None:
            set_threads = getattr(library, setter, None) if setter else None
            return Library(name, _address(function), 0, set_threads or one_thread)
    return None


def one_thread(n: int) -> None:
    """A library without threads."""


@dataclass(frozen=True, slots=True)
class OneDNN:
    """dnnl_sgemm, whose arguments are C's, and rows come one after the other."""

    version: str
    address: int
    set_threads: Callable[[int], object]


class _Version(ctypes.Structure):
    _fields_ = [(part, ctypes.c_int) for part in ("major", "minor", "patch")]


def _onednn() -> OneDNN | None:
    for path in _onednn_paths():
        try:
            library = ctypes.CDLL(str(path))
            function, version_of = library.dnnl_sgemm, library.dnnl_version
            # It shares its threads with whoever else uses this library of the system.
            set_threads = ctypes.CDLL("libgomp.so.1").omp_set_num_threads
        except (OSError, AttributeError):
            continue
        version_of.restype = ctypes.POINTER(_Version)
        found = version_of().contents
        words = f"{found.major}.{found.minor}.{found.patch} ({onednn_kernels(library)})"
        return OneDNN(words, _address(function), set_threads)
    return None


def _onednn_paths() -> Iterator[Path]:
    """Where the package has put it, if it is installed."""
    try:
        installed = files(ONEDNN_PACKAGE) or []
    except PackageNotFoundError:
        return
    for file in sorted(installed):
        if file.name.startswith("libdnnl.so."):
            yield Path(str(file.locate()))


@cache
def torchs_mkl() -> Library | None:
    """The MKL that a wheel of PyTorch for x86 has inside, where one is installed.

    Loaded by path, which takes a second: importing torch would start its threads, too.
    """
    try:
        (path,) = (file for file in files("torch") or [] if file.name == "libtorch_cpu.so")
        library = ctypes.CDLL(str(path.locate()))
        function, set_threads = library.sgemm_64_, library.mkl_serv_set_num_threads
    except (PackageNotFoundError, ValueError, OSError, AttributeError):
        return None
    return Library(f"MKL (torch {version('torch')})", _address(function), 0, set_threads)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


LIBRARY, ONEDNN = _openblas() or _system_blas(), _onednn()
