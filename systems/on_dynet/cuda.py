"""CUDA's libraries, found for DyNet's CUDA build before it is loaded, and the use of a device."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Mapping
from pathlib import Path

# DyNet's libraries of CUDA 13 and theirs, each after those that it needs.
LIBRARIES = ("libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10")


class CudaDevice:
    """The device of this process, from before DyNet starts.

    Raises:
        OSError: If a library is missing.
        RuntimeError: With CUDA's message, if there is no device.
    """

    def __init__(self, folder: Path) -> None:
        build = json.loads((folder / "build.json").read_text(encoding="utf-8"))
        libraries = [ctypes.CDLL(find_library(name, build)) for name in LIBRARIES]
        self._runtime = libraries[0]
        self._runtime.cudaGetErrorString.restype = ctypes.c_char_p
        self._free_bytes = self._count_free_bytes()

    def synchronize(self) -> None:
        """Wait until all work is complete.

        Raises:
            RuntimeError: If CUDA reports an error, also of earlier work.
        """
        self._call("cudaDeviceSynchronize")

    def peak_memory_bytes(self) -> int:
        """Return the device memory taken since the construction of this object.

        DyNet returns no memory, so its current memory is its peak. Other processes must be idle.
        """
        return max(0, self._free_bytes - self._count_free_bytes())

    def _count_free_bytes(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._runtime, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: {self._runtime.cudaGetErrorString(status).decode()}")


def explain_missing_device(folder: Path) -> str | None:
    """Return the reason if a build finds no library or no device, where DyNet would abort."""
    try:
        CudaDevice(folder)
    except (OSError, RuntimeError) as error:
        return f"DyNet's build for CUDA finds no CUDA device: {error}"
    return None


def find_library(name: str, build: Mapping[str, str]) -> str:
    """Return the path of a library, or its name for the dynamic linker.

    Args:
        build: facts about the build, with the directory of the libraries that it was linked with.
            A build from another machine finds them in NVIDIA's packages in the environment.
    """
    packages = (path for folder in sys.path for path in Path(folder).glob("nvidia/*/lib"))
    folders = (Path(build.get("cuda_libraries", "")), *packages)
    return next((str(folder / name) for folder in folders if (folder / name).exists()), name)
