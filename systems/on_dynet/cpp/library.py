"""Python interface (ctypes) of the library of DyNet programs in C++."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynbatch.systems.on_dynet.build import PROGRAMS
from dynbatch.systems.plans.columns import Columns

Array = NDArray[np.float32]


class DynetError(RuntimeError):
    """Error raised by DyNet, with its message."""


class _Column(ctypes.Structure):
    _fields_ = (("values", ctypes.c_void_p), ("size", ctypes.c_int64))


class DynetLibrary:
    """DyNet, which starts once per process and then cannot change its settings.

    Args:
        memory: as in DyNet's --dynet-mem.
        autobatch: number of DyNet's autobatch mode.
        folder: directory of the library; a build for CUDA computes there.
    """

    def __init__(self, memory: str, seed: int, autobatch: int, folder: Path) -> None:
        self._calls = ctypes.CDLL(str(folder / PROGRAMS))
        self._calls.last_error.restype = ctypes.c_char_p
        self.call("start_dynet", memory.encode(), ctypes.c_uint(seed), ctypes.c_int(autobatch))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of interface.cc.

        Raises:
            DynetError: With DyNet's message, if the call fails.
        """
        if getattr(self._calls, name)(*arguments):
            raise DynetError(f"{name}: {self._calls.last_error().decode()}")


class DynetProgram:
    """A network in C++, with its parameters and the graph of the last mini-batch."""

    def __init__(self, library: DynetLibrary, name: str) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        library.call("make_program", name.encode(), ctypes.byref(self._handle))

    def add_parameter(self, name: str, values: Array) -> None:
        """Add a vector, or a matrix (in, out)."""
        n_out, n_in = values.shape[-1], values.shape[0] if values.ndim > 1 else 0
        sizes = ctypes.c_uint(n_out), ctypes.c_uint(n_in)
        self._call("add_parameter", name.encode(), *sizes, _as_float_pointer(values))

    def add_table(self, name: str, values: Array) -> None:
        """Add a lookup table (n, width)."""
        sizes = (ctypes.c_uint(size) for size in values.shape)
        self._call("add_table", name.encode(), *sizes, _as_float_pointer(values))

    def add_trainer(self, learning_rate: float) -> None:
        """Add plain SGD, after all parameters."""
        self._call("add_trainer", ctypes.c_float(learning_rate))

    def construct(self, columns: Columns) -> None:
        """Build the graph of a mini-batch, up to the end of its first segment."""
        structs = [_Column(column.ctypes.data, len(column)) for column in columns]
        array = (_Column * len(structs))(*structs)
        self._call("construct", array, ctypes.c_uint(len(structs)))

    def extend(self) -> bool:
        """Build the next segment, or the sum of all losses; return False if nothing is left."""
        extended = ctypes.c_int()
        self._call("extend", ctypes.byref(extended))
        return bool(extended.value)

    def forward(self) -> tuple[float, float]:
        """Schedule and evaluate what was built.

        Returns:
            The loss; the fraction of the time that passed before DyNet's first operator.
        """
        loss, scheduling = ctypes.c_float(), ctypes.c_double()
        self._call("forward", ctypes.byref(loss), ctypes.byref(scheduling))
        return loss.value, scheduling.value

    def backward(self) -> None:
        """Add to the gradients of all parameters."""
        self._call("backward")

    def update(self) -> None:
        """Make one SGD step, after which gradients are zero."""
        self._call("update")

    def clear_gradients(self) -> None:
        """Set to zero all gradients that no update has used."""
        self._call("clear_gradients")

    def read_values(self, name: str, like: Array) -> Array:
        """Return the values of a parameter or a table, in the shape in which it was added."""
        return self._read("read_values", name, like)

    def read_gradient(self, name: str, like: Array) -> Array:
        """Return the dense gradient of a parameter or a table."""
        return self._read("read_gradient", name, like)

    def outputs(self) -> Array:
        """Return the outputs of the last forward pass (n, width)."""
        n, width = ctypes.c_int64(), ctypes.c_uint()
        self._call("size_outputs", ctypes.byref(n), ctypes.byref(width))
        outputs = np.empty((n.value, width.value), np.float32)
        self._call("read_outputs", _as_float_pointer(outputs))
        return outputs

    def _read(self, function: str, name: str, like: Array) -> Array:
        array = np.empty_like(like, order="C")
        self._call(function, name.encode(), _as_float_pointer(array))
        return array

    def _call(self, function: str, *arguments: Any) -> None:
        self._library.call(function, self._handle, *arguments)


def _as_float_pointer(values: Array) -> Any:
    """Return a pointer to numbers that DyNet copies or fills."""
    if values.dtype != np.float32 or not values.flags.c_contiguous:
        raise ValueError(f"expected contiguous float32, got {values.dtype} {values.shape}")
    return values.ctypes.data_as(ctypes.c_void_p)
