"""One pass over a mini-batch in DyNet, and the expressions that a program passes for evaluation."""

from __future__ import annotations

import ctypes
import json
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Weights
from dynbatch.harness.contracts.system import Clock, Counters, Result, RunSettings, System
from dynbatch.harness.machine.facts import measure_own_gpu_bytes
from dynbatch.systems.on_dynet.build import GATHER_CLOCK, OUTGROWN, SOURCE_BUILDS

# DyNet's libraries of CUDA 13 and theirs, each after those that it needs.
LIBRARIES = ("libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10")


class CudaDevice:
    """The device of this process, from before DyNet starts.

    Raises:
        OSError: If a library is missing.
        RuntimeError: With CUDA's message, if a device is missing.
    """

    def __init__(self, folder: Path) -> None:
        build = json.loads((folder / "build.json").read_text(encoding="utf-8"))
        libraries = [ctypes.CDLL(find_library(name, build)) for name in LIBRARIES]
        self._runtime = libraries[0]
        self._runtime.cudaGetErrorString.restype = ctypes.c_char_p
        self._call("cudaFree", None)  # opens the device
        self._bytes_before = measure_own_gpu_bytes()

    def synchronize(self) -> None:
        """Wait until all work is complete.

        Raises:
            RuntimeError: If CUDA reports an error, also of earlier work.
        """
        self._call("cudaDeviceSynchronize")

    def measure_peak_bytes(self) -> int | None:
        """Return the memory that this process took since the construction; None if unknown.

        DyNet returns no memory, so its current memory is its peak.
        """
        now = measure_own_gpu_bytes()
        before = self._bytes_before
        return None if now is None or before is None else max(0, now - before)

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


class GraphSegment(NamedTuple):
    """Graph segment: expressions that are evaluated before those of the next segment are built.

    Attributes:
        loss: summed loss of the segment; its evaluation ends the segment. Scores are not read.
        outputs: vectors, or mini-batches of them, in the order of MiniBatch.outputs. If there are
            several segments, each has an entry per instance, None after the end of an instance.
    """

    loss: Any
    outputs: Sequence[Any]


class Needed(NamedTuple):
    """The newest expression: it is evaluated with all before it, and the program reads its value.

    It ends a segment without loss and outputs, after which values decide how a program continues.
    """

    value: Any


Part = GraphSegment | Needed


class DynetSystem(System):
    """Base class of systems that run DyNet.

    Attributes:
        fault: exception type for DyNet's report that a memory pool was too small and has grown.
    """

    fault: ClassVar[type[Exception]]

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self._gradients_pending = False
        self._cuda: CudaDevice | None = None
        self._gather_clock: ctypes.CDLL | None = None

    @staticmethod
    def explain_missing_device(settings: RunSettings) -> str | None:
        """Return the reason if the device is CUDA and there is none, or None."""
        if settings.device == "cpu":
            return None
        return explain_missing_device(SOURCE_BUILDS[settings.device])

    def _open_device(self) -> None:
        """Load, before DyNet, what must precede it: CUDA's libraries, and the clock of copies."""
        folder = SOURCE_BUILDS[self.settings.device]
        if self.settings.device != "cpu":
            self._cuda = CudaDevice(folder)
        if self.options.profile:  # DyNet's execution engines with a clock around their copies
            self._gather_clock = ctypes.CDLL(str(folder / GATHER_CLOCK), mode=ctypes.RTLD_GLOBAL)
            self._gather_clock.take_gather_fraction.restype = ctypes.c_double

    def data_movement_fraction(self) -> float | None:
        """Return the fraction of forward and backward that copied operands of batches.

        It includes adding up the gradients of such copies, and needs the option `profile`.
        """
        if self._gather_clock is None:
            return None
        is_in_forward = "schedule" not in self.phases  # scheduling
        fraction: float = self._gather_clock.take_gather_fraction(is_in_forward)
        return fraction if fraction >= 0 else None

    def synchronize(self) -> None:
        if self._cuda is not None:
            self._cuda.synchronize()

    def peak_memory_bytes(self) -> int | None:
        """Return the peak of CUDA memory; None if unknown, and on the CPU."""
        return None if self._cuda is None else self._cuda.measure_peak_bytes()

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Build the graph, then let DyNet batch and run it."""
        try:
            self._step(clock, update)
        except self.fault as error:
            if OUTGROWN not in str(error):
                raise
            self._gradients_pending = True
            self.run(clock, update=update)

    def _step(self, clock: Clock, update: bool) -> None:
        if self._gradients_pending:  # DyNet accumulates gradients until an update uses them
            self._clear_gradients()
            self._gradients_pending = False
        self._evaluate(clock)
        if self.settings.mode != "train":
            return
        self._gradients_pending = True
        self._backward()
        clock.mark("backward")
        if update:
            self._update()
            self._gradients_pending = False
            clock.mark("update")

    def result(self) -> Result:
        """Return the last result.

        It has gradients only after run(update=False), because DyNet's update clears them.
        """
        gradients = self._read_gradients() if self._gradients_pending else {}
        return Result(self.last_loss(), self._read_outputs(), gradients, self.counters())

    def counters(self) -> Counters:
        """Return no counters, because DyNet reports none."""
        return Counters()

    @abstractmethod
    def _read_outputs(self) -> NDArray[np.float32]:
        """Return the rows of all outputs."""

    @abstractmethod
    def _read_gradients(self) -> Weights:
        """Return dense gradients by the model's names."""

    @abstractmethod
    def _clear_gradients(self) -> None:
        """Set all gradients to zero."""

    @abstractmethod
    def _evaluate(self, clock: Clock) -> None:
        """Build the graph and compute its loss, marking both."""

    @abstractmethod
    def _backward(self) -> None:
        """Compute all gradients."""

    @abstractmethod
    def _update(self) -> None:
        """Make one SGD step, after which gradients are zero."""
