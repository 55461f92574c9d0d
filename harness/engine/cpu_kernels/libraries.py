"""Libraries for matmuls, found in packages or the system, and called by address.

* OpenBLAS, from a package made for linking, or else the one inside NumPy's wheel (its name may
  change with any release), or a BLAS of the system.
* oneDNN, by Intel, which PyTorch uses, too. Its matmuls of the few rows of a batch are the fastest:
  64 and 32 rows by weights of 256 x 1 024 run at 207 and 204 GFLOP/s on one Zen 5 core, and at up
  to 150 with OpenBLAS.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import numpy as np

ONEDNN_PACKAGE = "onednn-cpu-gomp"
OPENBLAS_PACKAGE = "scipy-openblas64"
SMALL = 10**6  # multiplications in OpenBLAS's largest small matmul
SMALL_CORES = (b"SkylakeX", b"Cooperlake", b"SapphireRapids")
# In OpenBLAS's configuration, the name of the kernels precedes the number of threads.
_OPENBLAS = re.compile(r"OpenBLAS (?P<version>\S+) .*?(?P<kernels>\S+) MAX_THREADS")
# dnnl_cpu_isa_t of oneDNN.
_ONEDNN_KERNELS = {
    0x1: "SSE4.1",
    0x3: "AVX",
    0x7: "AVX2",
    0xF: "AVX2 VNNI",
    0x1F: "AVX2 VNNI 2",
    0x27: "AVX-512",
    0x67: "AVX-512 VNNI",
    0xE7: "AVX-512 BF16",
    0x1EF: "AVX-512 FP16",
    0xFEF: "AVX-512 AMX",
    0x1FEF: "AVX-512 AMX FP16",
}


@dataclass(frozen=True, slots=True)
class MatmulLibrary:
    """A library of matmuls.

    Attributes:
        name: Name, version and kernels.
        address: The address of sgemm, which has Fortran's arguments; of oneDNN that of dnnl_sgemm,
            which has C's arguments and row-major matrices.
        limit: The largest matmul per call, 0 for any.
    """

    name: str
    address: int
    set_threads: Callable[[int], object]
    limit: int = 0


def describe_openblas(library: Any) -> str:
    """Return name, version and kernels of the loaded OpenBLAS of NumPy or SciPy."""
    tell = library.scipy_openblas_get_config64_
    tell.restype = ctypes.c_char_p
    return parse_openblas_name(tell().decode())


def parse_openblas_name(configuration: str) -> str:
    """Return library, version and kernels from the text of openblas_get_config."""
    match = _OPENBLAS.search(configuration)
    if match is None:
        return " ".join(configuration.split()) or "OpenBLAS"
    return f"OpenBLAS {match['version']} ({match['kernels']})"


def find_onednn_kernels(library: Any) -> str:
    """Return the instruction set that a loaded oneDNN uses; "?" if it does not report it."""
    try:
        code = int(library.dnnl_get_effective_cpu_isa())
    except AttributeError:
        return "?"
    return _ONEDNN_KERNELS.get(code, hex(code))


def _load_openblas(paths: Iterable[Path], where: str = "") -> MatmulLibrary | None:
    """Return the first OpenBLAS with 64-bit sizes among these files.

    Args:
        where: Appended to its name.
    """
    for path in paths:
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
        name = describe_openblas(library) + where
        return MatmulLibrary(name, _find_address(function), set_threads, limit)
    return None


def _list_numpy_libraries() -> list[Path]:
    """Return the files of the OpenBLAS inside NumPy's wheel."""
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    return sorted(folder.glob("libscipy_openblas64_*"))


def _load_numpy_openblas() -> MatmulLibrary | None:
    return _load_openblas(_list_numpy_libraries(), " of NumPy's wheel")


def _load_system_blas() -> MatmulLibrary | None:
    """Return a BLAS of the system or of conda."""
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
            return MatmulLibrary(name, _find_address(function), set_threads or ignore_thread_count)
    return None


def ignore_thread_count(n: int) -> None:
    """Do nothing; for a library without threads."""


class _Version(ctypes.Structure):
    _fields_ = [(part, ctypes.c_int) for part in ("major", "minor", "patch")]


def _load_onednn() -> MatmulLibrary | None:
    for path in _list_files(ONEDNN_PACKAGE, "libdnnl.so."):
        try:
            library = ctypes.CDLL(str(path))
            function, version_of = library.dnnl_sgemm, library.dnnl_version
            # oneDNN shares its threads with every other user of the system's OpenMP library.
            set_threads = ctypes.CDLL("libgomp.so.1").omp_set_num_threads
        except (OSError, AttributeError):
            continue
        version_of.restype = ctypes.POINTER(_Version)
        release = version_of().contents
        number = f"{release.major}.{release.minor}.{release.patch}"
        name = f"oneDNN {number} ({find_onednn_kernels(library)})"
        return MatmulLibrary(name, _find_address(function), set_threads)
    return None


def _list_files(package: str, beginning: str) -> Iterator[Path]:
    """Yield the paths of a package's files with this prefix, if the package is installed."""
    try:
        installed = files(package) or []
    except PackageNotFoundError:
        return
    for file in sorted(installed):
        if file.name.startswith(beginning):
            yield Path(str(file.locate()))


def _find_address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


PACKAGED = _load_openblas(_list_files(OPENBLAS_PACKAGE, "libscipy_openblas64_."))
LIBRARY, ONEDNN = PACKAGED or _load_numpy_openblas() or _load_system_blas(), _load_onednn()


def describe_libraries() -> tuple[str, str]:
    """Return the libraries that multiply on a CPU, and how to install missing ones ("" if none)."""
    names = [library.name for library in (ONEDNN, LIBRARY) if library is not None]
    lacking = [OPENBLAS_PACKAGE] if PACKAGED is None else []
    lacking += [ONEDNN_PACKAGE] if ONEDNN is None else []
    advice = f"pip install {' '.join(lacking)}" if lacking else ""
    return ", ".join(names) or "nothing", advice


def describe_numpy_blas() -> str:
    """Return the library that NumPy multiplies with, from its OpenBLAS or from NumPy's build."""
    for path in _list_numpy_libraries():
        try:
            return describe_openblas(ctypes.CDLL(str(path)))
        except (OSError, AttributeError):
            continue
    built: Any = np.show_config(mode="dicts")
    blas = built.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
