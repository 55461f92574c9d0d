"""Contract of a system: untimed setup, timed `run`, untimed `result`."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.extras import describe_installation, explain_outdated_version
from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.options import NoOptions, format_options, import_named, read_options
from dynbatch.harness.contracts.policy import LearningSettings
from dynbatch.harness.errors import ConfigError, UnsupportedTrial

Parameters = Mapping[str, NDArray[np.floating[Any]]]
Phase = Literal["construct", "schedule", "forward", "backward", "update"]
PHASES: tuple[Phase, ...] = get_args(Phase)


class Clock(Protocol):
    """Interface of the harness's clock for systems."""

    def mark(self, phase: str) -> None:
        """Synchronize, and add the time since the previous mark (or the start) to `phase`."""

    def divide(self, shares: Mapping[str, float]) -> None:
        """Divide the time since the previous mark among phases.

        This is for compiled code that runs several phases itself. The next mark takes the rest.

        Args:
            shares: Fraction of the time by phase.
        """


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Settings of a trial for a system; `options` are the system's own, from its YAML."""

    mode: str  # "train" or "infer"
    device: str  # "cpu" or "cuda"
    threads: int
    batch_size: int
    learning_rate: float
    seed: int
    policy: str | None = None
    learning: LearningSettings = field(default_factory=LearningSettings)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counters:
    """Hardware-independent work of the last run; None if a framework does not report it.

    Attributes:
        n_launches: Number of kernel calls.
        n_copies: Kernel calls that only make operands contiguous.
        lower_bound: Number of batches that no policy can undercut on the batched graph.
        n_flop: Floating-point operations of forward and backward (engine/work.py).
        bytes_touched: Bytes that the steps of forward and backward read and write.
    """

    n_batches: int | None = None
    n_launches: int | None = None
    bytes_copied: int | None = None
    n_copies: int | None = None
    lower_bound: int | None = None
    n_flop: int | None = None
    bytes_touched: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """Results of the last run.

    Attributes:
        loss: Sum over the mini-batch.
        outputs: (k, d) rows in the order of MiniBatch.outputs.
        gradients: Dense gradients of the summed loss in the parameters' shapes; empty if mode is
            "infer".
    """

    loss: float
    outputs: NDArray[np.floating[Any]]
    gradients: Mapping[str, NDArray[np.floating[Any]]]
    counters: Counters


class System(ABC):
    """A framework in a certain use.

    A module under systems/ has one adapter class named `Adapter`, and imports its framework at the
    top, so that importing the module loads the framework.

    Attributes:
        option_type: Frozen dataclass of the allowed system.options; `options` is an instance of it.
        framework: Module of the framework, which has an extra of this name in pyproject.toml.
    """

    option_type: ClassVar[type[Any]] = NoOptions
    framework: ClassVar[str | None] = None

    phases: tuple[str, ...] = PHASES  # phases that it can separate; others are recorded as null
    computes: bool = True  # False: performs no arithmetic that could be checked
    places_inputs: bool = False  # True: `load` places inputs, because only arithmetic is measured
    learns: bool = False  # True: `learn` must learn a policy after `prepare`

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.options = self.options_of(settings)

    @classmethod
    def options_of(cls, settings: RunSettings) -> Any:
        return read_options(cls.option_type, settings.options, cls.__module__)

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Return why this system cannot run this trial here, or None."""
        return None

    @abstractmethod
    def prepare(self, model: Model, weights: Weights) -> None:
        """Build, compile and allocate, once and untimed; the weights must be copied."""

    def learn(self, instances: Sequence[Any]) -> None:  # noqa: B027 - most learn nothing
        """Learn a batching policy on one mini-batch, once, before the first load."""

    def compile_for(self, instances: Sequence[Any]) -> None:  # noqa: B027 - most compile nothing
        """Trace and compile everything that depends on the shapes of this mini-batch.

        It is called once for each mini-batch before the first pass; its time counts in compile_s.
        """

    def n_compilations(self) -> int | None:
        """Return the number of programs traced or compiled so far; None if none ever are.

        An increase during timed passes yields the warning `recompiled_while_timed`.
        """
        return None

    @abstractmethod
    def load(self, instances: Sequence[Any]) -> None:
        """Take the next mini-batch, untimed; no graph work may happen here."""

    @abstractmethod
    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Process the loaded mini-batch, marking each phase when it ends.

        In mode "train": construct, schedule, forward, backward and, if `update`, one step of plain
        SGD on the summed loss; in mode "infer": construct, schedule and forward (loss included).
        """

    @abstractmethod
    def result(self) -> Result:
        """Return the results of the last run; outputs and gradients only without an update."""

    @abstractmethod
    def parameters(self) -> Parameters:
        """Return copies of the current parameters, untimed, by the model's names and shapes."""

    def last_loss(self) -> float:
        """Return the loss of the last run; override it if this is cheaper than `result`."""
        return self.result().loss

    def counters(self) -> Counters:
        """Return the work of the last run; override it if this is cheaper than `result`."""
        return self.result().counters

    def data_movement_fraction(self) -> float | None:
        """Return the fraction of forward and backward that only moved data since the last call.

        None if it is unknown or was not requested, because measuring it may slow the trial down.
        """
        return None

    def peak_memory_bytes(self) -> int | None:
        """Return the peak of memory that only the framework knows (a GPU's), or None."""
        return None

    def reset_peak_memory(self) -> None:  # noqa: B027 - most frameworks use process memory only
        """Reset that peak; called once, between the check and the timed passes."""

    def synchronize(self) -> None:  # noqa: B027 - nothing to wait for unless a device is involved
        """Wait until all work is complete; the clock calls it, also before `prepare`."""

    def effective_options(self) -> dict[str, str]:
        """Return the effective options, and the backend and libraries used."""
        return format_options(self.options)

    def versions(self) -> dict[str, str]:
        """Return facts about the framework's build (version, BLAS, source or wheel)."""
        return {}


def load_adapter(name: str) -> type[System]:
    """Import a system's adapter, and with it its framework.

    Raises:
        UnsupportedTrial: The framework cannot be imported or is too old.
        ConfigError: The module does not exist or has no adapter.
    """
    try:
        module = import_named("system.adapter", name, "dynbatch.systems.null_system")
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        raise UnsupportedTrial(
            f"{missing} is not installed; {describe_installation(missing)}"
        ) from error
    except ImportError as error:
        raise UnsupportedTrial(f"{name} cannot be imported: {error}") from error
    if not hasattr(module, "Adapter"):
        raise ConfigError(f"{name} has no class Adapter; choose a module with one")
    adapter: type[System] = module.Adapter
    if adapter.framework is not None:
        version = str(sys.modules[adapter.framework].__version__)
        reason = explain_outdated_version(adapter.framework, version)
        if reason is not None:
            raise UnsupportedTrial(reason)
    return adapter
