"""Library of the networks in C++: compiled on first use, cached, and called with ctypes."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.harness.machine.caches import make_cache_folder, read_cached, write_cached
from dynbatch.harness.machine.facts import hash_cpu
from dynbatch.harness.values.arrays import IntArray

Array = NDArray[np.float32]
SOURCES = Path(__file__).parent / "programs"
COMPILERS = ("g++", "clang++", "c++")
FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math"),
    *("-ffinite-math-only", "-fno-signed-zeros", "-fopenmp", "-fPIC", "-shared"),
)
# GCC prefers half of an AVX-512 register.
X86_FLAGS = ("-mprefer-vector-width=512",)
HOW_TO_INSTALL = "install one (Debian: apt install g++), or set CXX"


class NativeError(RuntimeError):
    """Error in the networks' C++ code, with its message."""


class _Weight(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("values", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
    )


class _Ids(ctypes.Structure):
    _fields_ = (("values", ctypes.c_void_p), ("size", ctypes.c_int64))


def find_cpp_compiler() -> str | None:
    """Return the path of a C++ compiler, $CXX if it is set, or None."""
    names = (os.environ["CXX"],) if os.environ.get("CXX") else COMPILERS
    return next((path for path in map(shutil.which, names) if path), None)


def explain_missing_compiler() -> str | None:
    """Return the reason if a C++ compiler is missing, or None."""
    if find_cpp_compiler() is not None:
        return None
    tried = os.environ.get("CXX") or ", ".join(COMPILERS)
    return f"no C++ compiler: expected one of {tried}, found none; {HOW_TO_INSTALL}"


def hash_programs(sources: Path = SOURCES) -> str:
    """Hash the C++ files of a directory."""
    digest = hashlib.sha256()
    for path in sorted(sources.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def build_library(sources: Path = SOURCES) -> bytes:
    """Return the compiled library, from the cache if the same one was compiled before.

    Raises:
        UnsupportedTrial: No compiler was found, or it reports an error.
    """
    compiler = find_cpp_compiler()
    if compiler is None:
        raise UnsupportedTrial(explain_missing_compiler())
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    flags = FLAGS + (X86_FLAGS if is_x86 and "clang" not in Path(compiler).name else ())
    key = [read_compiler_version(compiler), *flags, hash_cpu(), hash_programs(sources)]
    folder = make_cache_folder("native")
    entry = folder and folder / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.so"
    stored = entry and read_cached(entry)
    if stored:
        return stored
    with tempfile.TemporaryDirectory() as work:
        library = Path(work, "native.so")
        files = sorted(str(path) for path in sources.glob("*.cc"))
        done = subprocess.run(
            [compiler, *flags, *files, "-o", str(library)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if " error: " in line]
            reason = lines[0] if lines else f"exit status {done.returncode}"
            raise UnsupportedTrial(f"{compiler} cannot compile {sources}: {reason}")
        content = library.read_bytes()
    if entry:
        write_cached(entry, content)
    return content


def read_compiler_version(compiler: str) -> str:
    """Return the first line that a compiler prints about its version."""
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return (done.stdout.splitlines() or [compiler])[0]


@functools.cache
def load_library() -> ctypes.CDLL:
    """Compile the library, if necessary, and load it.

    Raises:
        UnsupportedTrial: It cannot be compiled or loaded.
    """
    with tempfile.TemporaryDirectory() as folder:  # a loaded library needs its file no more
        path = Path(folder, "native.so")
        path.write_bytes(build_library())
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:  # such as a file system without execution
            raise UnsupportedTrial(
                f"the compiled library cannot be loaded: {error}; set TMPDIR to another directory"
            ) from error
    library.last_error.restype = ctypes.c_char_p
    return library


class NativeNetwork:
    """A network in C++, with its parameters and the last mini-batch.

    Args:
        model: name of the model.
        weights: initial weights, which are copied.
        is_training: whether backward passes follow.
        onednn: address of dnnl_sgemm for matmuls of many rows; 0: not used.
        openblas: address of Fortran's sgemm, of OpenBLAS or another BLAS, used without oneDNN.
        n_threads: number of threads of loops outside of matmuls.
    """

    def __init__(
        self,
        model: str,
        weights: Mapping[str, Array],
        *,
        is_training: bool,
        onednn: int,
        openblas: int,
        n_threads: int,
    ) -> None:
        self._library = load_library()
        self._handle = ctypes.c_void_p()
        self._shapes = {name: values.shape for name, values in weights.items()}
        arrays = {n: np.ascontiguousarray(w, np.float32) for n, w in weights.items()}
        structs = [
            _Weight(n.encode(), w.ctypes.data, w.size // w.shape[-1], w.shape[-1])
            for n, w in arrays.items()
        ]
        self._call("prepare", *map(ctypes.c_void_p, (onednn, openblas)), ctypes.c_int(n_threads))
        array = (_Weight * len(structs))(*structs)
        self._call(
            "make_network",
            model.encode(),
            array,
            ctypes.c_int64(len(structs)),
            ctypes.c_int(is_training),
            ctypes.byref(self._handle),
        )

    def construct(self, columns: Sequence[IntArray]) -> None:
        """Plan a mini-batch; its columns must stay in memory."""
        structs = [_Ids(column.ctypes.data, len(column)) for column in columns]
        array = (_Ids * len(structs))(*structs)
        self._call("construct", self._handle, array, ctypes.c_int64(len(structs)))

    def forward(self) -> float:
        """Compute all states and scores; return the summed loss."""
        loss = ctypes.c_double()
        self._call("forward", self._handle, ctypes.byref(loss))
        return loss.value

    def backward(self) -> None:
        """Compute all gradients."""
        self._call("backward", self._handle)

    def update(self, learning_rate: float) -> None:
        """Make one SGD step."""
        self._call("update", self._handle, ctypes.c_float(learning_rate))

    def read_values(self) -> dict[str, Array]:
        """Return copies of all parameters."""
        return self._read_all("read_values")

    def read_gradients(self) -> dict[str, Array]:
        """Return dense copies of all gradients."""
        return self._read_all("read_gradient")

    def read_outputs(self, width: int) -> Array:
        """Return the scores of the last forward pass (n, width)."""
        n = ctypes.c_int64()
        self._call("n_outputs", self._handle, ctypes.byref(n))
        scores = np.empty((n.value // width, width), np.float32)
        self._call("read_outputs", self._handle, _as_pointer(scores))
        return scores

    def _read_all(self, function: str) -> dict[str, Array]:
        arrays = {name: np.empty(shape, np.float32) for name, shape in self._shapes.items()}
        for name, array in arrays.items():
            self._call(function, self._handle, name.encode(), _as_pointer(array))
        return arrays

    def _call(self, function: str, *arguments: Any) -> None:
        """Call a function of interface.cc.

        Raises:
            NativeError: With its message, if the call fails.
        """
        if getattr(self._library, function)(*arguments):
            raise NativeError(f"{function}: {self._library.last_error().decode()}")


def _as_pointer(values: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(values.ctypes.data)
