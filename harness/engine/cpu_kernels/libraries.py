"""The libraries that multiply, found and made known to the compiler by names of our own.

OpenBLAS, which NumPy brings, or else a BLAS that the system has; and oneDNN (Intel's, which PyTorch
uses too), whose products of a batch's few rows are the fastest there are: 64 and 32 rows by weights
of 256 x 1 024 run at 207 and 204 GFLOP/s on one Zen 5 core, and at 150 with OpenBLAS at its best.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np

from harness.machine.blas_names import onednn_kernels, openblas_name

SGEMM, ONEDNN_SGEMM = "dynamic_batching_sgemm", "dynamic_batching_onednn_sgemm"
ONEDNN_PACKAGE = "onednn-cpu-gomp"
SMALL = 10**6  # multiplications in OpenBLAS's largest small product
SMALL_CORES = (b"SkylakeX", b"Cooperlake", b"SapphireRapids")


@dataclass(frozen=True, slots=True)
class Library:
    """An sgemm with Fortran's arguments.

    integer: of its sizes. limit: the largest product to hand it at once, 0 for any.
    """

    name: str
    integer: type[np.signedinteger[Any]]
    limit: int
    set_threads: Callable[[int], object]


def _openblas() -> tuple[Any, Library] | None:
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
        name = openblas_name(library)
        return function, Library(name, np.int64, limit, set_threads)
    return None


def _system_blas() -> tuple[Any, Library] | None:
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
            return function, Library(name, np.int32, 0, set_threads or one_thread)
    return None


def one_thread(n: int) -> None:
    """A library without threads."""


@dataclass(frozen=True, slots=True)
class OneDNN:
    """dnnl_sgemm, whose arguments are C's, and rows come one after the other."""

    version: str
    set_threads: Callable[[int], object]


class _Version(ctypes.Structure):
    _fields_ = [(part, ctypes.c_int) for part in ("major", "minor", "patch")]


def _onednn() -> tuple[Any, OneDNN] | None:
    for path in _onednn_paths():
        try:
            library = ctypes.CDLL(str(path))
            function, version = library.dnnl_sgemm, library.dnnl_version
            # It shares its threads with whoever else uses this library of the system.
            set_threads = ctypes.CDLL("libgomp.so.1").omp_set_num_threads
        except (OSError, AttributeError):
            continue
        version.restype = ctypes.POINTER(_Version)
        found = version().contents
        words = f"{found.major}.{found.minor}.{found.patch} ({onednn_kernels(library)})"
        return function, OneDNN(words, set_threads)
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


def _register(name: str, function: Any) -> None:
    address = ctypes.cast(function, ctypes.c_void_p).value
    llvmlite.binding.add_symbol(name, address)


def _load() -> tuple[Library | None, OneDNN | None]:
    """Make both known; the compiler needs an address of either, though it may never be called."""
    blas, onednn = _openblas() or _system_blas(), _onednn()
    if blas is None:
        return None, None
    _register(SGEMM, blas[0])
    _register(ONEDNN_SGEMM, blas[0] if onednn is None else onednn[0])
    return blas[1], None if onednn is None else onednn[1]


LIBRARY, ONEDNN = _load()


def library_names() -> str:
    """What multiplies here, for the record."""
    names = [f"oneDNN {ONEDNN.version}"] if ONEDNN is not None else []
    return ", ".join([*names, LIBRARY.name if LIBRARY is not None else "none"])
