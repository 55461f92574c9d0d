"""C++ written by hand for each model, batched by level or by time step, without a framework.

It has no policy and no compiler of its own, so the engine's lead over it is their value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.networks import explain_unrunnable
from dynbatch.harness.contracts.system import (
    Clock,
    Counters,
    Parameters,
    Result,
    RunSettings,
    System,
)
from dynbatch.harness.engine.cpu_kernels.libraries import LIBRARY, ONEDNN, OPENBLAS_PACKAGE
from dynbatch.systems.native.library import (
    NativeNetwork,
    explain_missing_compiler,
    find_cpp_compiler,
    hash_programs,
    read_compiler_version,
)
from dynbatch.systems.plans.columns import (
    Columns,
    build_chain_columns,
    build_lattice_columns,
    build_parsed_columns,
    build_tree_columns,
)

# The arrays of a mini-batch that a program in C++ would hold, by model.
NETWORKS: dict[str, Callable[[Any, Sequence[Any]], Columns]] = {
    "tree_lstm": build_tree_columns,
    "lattice_lstm": build_lattice_columns,
    "var_lstm": build_chain_columns,
    "bilstm": build_chain_columns,
    "parser": build_parsed_columns,
}
TABLE = "dynbatch.systems.native.adapter:NETWORKS"


@dataclass(frozen=True, slots=True)
class NativeOptions:
    """Options of matmuls.

    Attributes:
        blas: library of matmuls of many rows; "auto" is oneDNN, if it is installed, or else
            OpenBLAS. An own kernel multiplies few rows (programs/packed.h).
    """

    blas: Literal["auto", "openblas"] = "auto"


class Adapter(System):
    """System of networks in C++ (programs/).

    The construct phase sorts vertices by level, or sentences by length.
    """

    phases = ("construct", "forward", "backward", "update")
    option_type = NativeOptions
    options: NativeOptions

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self._onednn = ONEDNN if self.options.blas == "auto" else None
        self._columns: Columns = ()
        self._loss = 0.0

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Return the reason if the model is not written, or something is not installed."""
        if settings.device != "cpu":
            return "networks in C++ run on a CPU only; set device=cpu"
        reason = explain_unrunnable(model, TABLE) or explain_missing_compiler()
        if reason is None and LIBRARY is None:
            return f"no library with sgemm found; pip install {OPENBLAS_PACKAGE}"
        return reason

    def prepare(self, model: Model, weights: Weights) -> None:
        """Compile the library on first use, and copy the weights."""
        self._model = model
        self._network = NativeNetwork(
            model.name,
            weights,
            is_training=self.settings.mode == "train",
            **self._prepare_libraries(),
            n_threads=self.settings.threads,
        )

    def _prepare_libraries(self) -> dict[str, int]:
        """Set the threads of both libraries, and return the addresses of their matmuls."""
        assert LIBRARY is not None
        LIBRARY.set_threads(self.settings.threads)
        if self._onednn is None:
            return {"onednn": 0, "openblas": LIBRARY.address}
        self._onednn.set_threads(self.settings.threads)
        return {"onednn": self._onednn.address, "openblas": LIBRARY.address}

    def load(self, instances: Sequence[Any]) -> None:
        """Concatenate the instances' arrays, which a program in C++ would hold."""
        self._columns = NETWORKS[self._model.name](self._model, instances)

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Plan the mini-batch and run it; in mode "train" also the derivative and the step."""
        self._network.construct(self._columns)
        clock.mark("construct")
        self._loss = self._network.forward()
        clock.mark("forward")
        if self.settings.mode != "train":
            return
        self._network.backward()
        clock.mark("backward")
        if update:
            self._network.update(self.settings.learning_rate)
            clock.mark("update")

    def result(self) -> Result:
        """Return the results of a run without an update; scores are computed again."""
        return Result(
            loss=self._loss,
            outputs=self._network.read_outputs(self._model.parameters["W_out"].shape[-1]),
            gradients=self._network.read_gradients() if self.settings.mode == "train" else {},
            counters=Counters(),
        )

    def parameters(self) -> Parameters:
        return self._network.read_values()

    def last_loss(self) -> float:
        """Return the loss only."""
        return self._loss

    def counters(self) -> Counters:
        """Return no counters, because none are kept."""
        return Counters()

    def effective_options(self) -> dict[str, str]:
        """Return the options, and the library of matmuls of many rows."""
        assert LIBRARY is not None
        name = self._onednn.name if self._onednn else LIBRARY.name
        return super().effective_options() | {"matmuls": f"own, {name}"}

    def versions(self) -> dict[str, str]:
        """Return the compiler, and the hash of the C++ sources."""
        return {
            "native_compiler": read_compiler_version(find_cpp_compiler() or ""),
            "native_programs": hash_programs()[:12],
        }
