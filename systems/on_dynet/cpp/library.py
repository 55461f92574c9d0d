"""The library of DyNet programs in C++: is it built, and what it offers, by ctypes.

    python -m systems.on_dynet.cpp.library FOLDER

writes beside the library of a folder of which sources it is, when scripts/build_dynet_native.sh
has built it.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systems.on_dynet.build import NATIVE
from systems.on_dynet.cpp.arrays import Columns

LIBRARY = "libdynet_programs.so"
FACTS = "programs.json"  # of the build: the hash of the sources
SOURCES = Path(__file__).parent / "programs"
HOW = "run make dynet-native"

Array = NDArray[np.float32]


class DynetError(RuntimeError):
    """DyNet stopped; the message is its own."""


class _Column(ctypes.Structure):
    _fields_ = (("values", ctypes.c_void_p), ("size", ctypes.c_int64))


def why_not_built(folder: Path = NATIVE) -> str | None:
    """Say what is missing of the source build or of the programs in it, or None."""
    if not (folder / "build.json").exists():
        return f"DyNet's source build is not installed; {HOW}"
    if not (folder / LIBRARY).exists() or not (folder / FACTS).exists():
        return f"DyNet's programs in C++ are not built; {HOW}"
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    if facts.get("sources_sha256") != sources_sha256():
        return f"DyNet's programs in C++ were built from other sources than these; {HOW}"
    return None


def sources_sha256(folder: Path = SOURCES) -> str:
    """Hash the programs' sources: all of the folder's files, by name and in the order of names."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(f"{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Library:
    """DyNet, which starts once in a process and then keeps its settings.

    memory: as in DyNet's --dynet-mem. autobatch: as DyNet counts its modes.
    """

    def __init__(self, memory: str, seed: int, autobatch: int, folder: Path = NATIVE) -> None:
        self._calls = ctypes.CDLL(str(folder / LIBRARY))
        self._calls.last_error.restype = ctypes.c_char_p
        self.call("start_dynet", memory.encode(), ctypes.c_uint(seed), ctypes.c_int(autobatch))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of interface.cc; raises DynetError with what DyNet said."""
        if getattr(self._calls, name)(*arguments):
            raise DynetError(f"{name}: {self._calls.last_error().decode()}")


class Program:
    """A network in C++, its parameters and its graph of the last mini-batch."""

    def __init__(self, library: Library, model: str) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        library.call("make_program", model.encode(), ctypes.byref(self._handle))

    def add_parameter(self, name: str, values: Array) -> None:
        """A vector, or a matrix (in, out)."""
        n_out, n_in = values.shape[-1], values.shape[0] if values.ndim > 1 else 0
        sizes = ctypes.c_uint(n_out), ctypes.c_uint(n_in)
        self._call("add_parameter", name.encode(), *sizes, _floats(values))

    def add_table(self, name: str, values: Array) -> None:
        """Vectors that are looked up (n, width)."""
        sizes = (ctypes.c_uint(size) for size in values.shape)
        self._call("add_table", name.encode(), *sizes, _floats(values))

    def add_trainer(self, learning_rate: float) -> None:
        """Plain SGD, after all parameters."""
        self._call("add_trainer", ctypes.c_float(learning_rate))

    def construct(self, columns: Columns) -> None:
        """Build the graph of a mini-batch (systems.on_dynet.cpp.arrays)."""
        structs = [_Column(column.ctypes.data, len(column)) for column in columns]
        array = (_Column * len(structs))(*structs)
        self._call("construct", array, ctypes.c_uint(len(structs)))

    def forward(self) -> float:
        """Schedule and evaluate; returns the loss."""
        loss = ctypes.c_float()
        self._call("forward", ctypes.byref(loss))
        return loss.value

    def backward(self) -> None:
        """Add to the gradients of all parameters."""
        self._call("backward")

    def update(self) -> None:
        """One step, after which gradients are zero."""
        self._call("update")

    def clear_gradients(self) -> None:
        """Forget gradients that no update has used."""
        self._call("clear_gradients")

    def values(self, name: str, like: Array) -> Array:
        """Values of a parameter or a table, in the shape in which it was added."""
        return self._read("read_values", name, like)

    def gradient(self, name: str, like: Array) -> Array:
        """Gradient of a parameter or a table, dense."""
        return self._read("read_gradient", name, like)

    def outputs(self, width: int) -> Array:
        """Scores of the last forward pass (n, width)."""
        n = ctypes.c_int64()
        self._call("n_outputs", ctypes.byref(n))
        found = np.empty((n.value // width, width), np.float32)
        self._call("read_outputs", _floats(found))
        return found

    def _read(self, function: str, name: str, like: Array) -> Array:
        found = np.empty_like(like, order="C")
        self._call(function, name.encode(), _floats(found))
        return found

    def _call(self, function: str, *arguments: Any) -> None:
        self._library.call(function, self._handle, *arguments)


def _floats(values: Array) -> Any:
    """Pointer to numbers that DyNet copies or fills; raises ValueError for other arrays."""
    if values.dtype != np.float32 or not values.flags.c_contiguous:
        raise ValueError(f"{values.dtype} {values.shape} is no contiguous float32")
    return values.ctypes.data_as(ctypes.c_void_p)


if __name__ == "__main__":
    facts_file = Path(sys.argv[1]) / FACTS
    facts_file.write_text(json.dumps({"sources_sha256": sources_sha256()}) + "\n", encoding="utf-8")
