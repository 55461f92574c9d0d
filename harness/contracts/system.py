"""The contract of a system: untimed set-up, timed `run`, untimed `result`."""

from __future__ import annotations

import importlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from harness.contracts.choice import Choice, Stopwatch, Tell
from harness.contracts.extras import how_to_install, why_too_old
from harness.contracts.model import Model, Weights
from harness.contracts.options import NoOptions, in_words, read_options
from harness.contracts.policy import LearningSettings
from harness.contracts.timeline import Part
from harness.errors import ConfigError, UnsupportedTrial

Parameters = Mapping[str, NDArray[np.floating[Any]]]
Phase = Literal["construct", "schedule", "forward", "backward", "update"]
PHASES: tuple[Phase, ...] = get_args(Phase)


class Clock(Protocol):
    """The harness's stopwatch, as a system sees it."""

    def mark(self, phase: str) -> None:
        """Synchronise, and book the time since the previous mark (or the start) on `phase`."""

    def divide(self, shares: Mapping[str, float]) -> None:
        """Book these shares of the time since the previous mark, each on its phase.

        For compiled code that goes through several phases by itself; the next mark books the rest.
        """


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What a system needs to know of its trial; `options` are its own, from its YAML."""

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
    """Hardware-independent work of the last run; None where a framework cannot tell.

    n_copies: those of the launches that only bring operands together. lower_bound: batches that no
    policy gets below on the graph that was batched. n_flop, bytes_touched: operations of floats in
    forward and backward, and bytes that their steps read and write (engine/work.py).
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
    """What the last run computed.

    loss: sum over the mini-batch.
    outputs (k, d): rows in the order of MiniBatch.outputs.
    gradients: of the summed loss, dense, in the parameter's own shape; empty when mode is "infer".
    """

    loss: float
    outputs: NDArray[np.floating[Any]]
    gradients: Mapping[str, NDArray[np.floating[Any]]]
    counters: Counters


class System(ABC):
    """One framework and how it is used.

    A module under systems/ holds one adapter class named `Adapter`, and imports its framework at
    its top, so that importing the module is what loads the framework.

    option_type: a frozen dataclass of what system.options may say; `options` is one of its values.
    framework: the module it stands on, which has an extra of its name in pyproject.toml.
    """

    option_type: ClassVar[type[Any]] = NoOptions
    framework: ClassVar[str | None] = None

    phases: tuple[str, ...] = PHASES  # those it can tell apart; others are recorded as null
    computes: bool = True  # False: does no arithmetic, so that there is nothing to check
    places_inputs: bool = False  # True: in `load`, where nothing but the arithmetic is measured
    learns: bool = False  # True: has a policy that `learn` must learn after `prepare`
    chooses: bool = False  # True: has settings that `choose` must choose after `prepare`

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.options = self.options_of(settings)

    @classmethod
    def options_of(cls, settings: RunSettings) -> Any:
        """Return the trial's options; raises ConfigError for one that this system has not."""
        return read_options(cls.option_type, settings.options, cls.__module__)

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Return why this system cannot run this trial here, or None."""
        return None

    @abstractmethod
    def prepare(self, model: Model, weights: Weights) -> None:
        """Build, compile and allocate, once and untimed; own copies of the weights."""

    def learn(self, instances: Sequence[Any]) -> None:  # noqa: B027 - most learn nothing
        """Learn a batching policy on one mini-batch, once, before the first load."""

    def choose(
        self,
        mini_batches: Sequence[Sequence[Any]],
        stopwatch: Stopwatch,
        tell: Tell = lambda words: None,
    ) -> Choice:
        """Choose how to run by running a few mini-batches, once, without a step of the weights.

        stopwatch: the harness's, which alone reads the time. tell: takes a line before
            whatever takes its time.
        """
        raise NotImplementedError("it has nothing to choose")

    def compile_for(self, instances: Sequence[Any]) -> None:  # noqa: B027 - most compile nothing
        """Trace and compile what this mini-batch will need, where that depends on its shapes.

        Called once for every mini-batch before the first pass; its time is booked on compile_s.
        """

    def n_compilations(self) -> int | None:
        """Return how many programs were traced or compiled so far; None where none ever is.

        What rises while passes are timed bears the warning `compiled_in_passes`.
        """
        return None

    @abstractmethod
    def load(self, instances: Sequence[Any]) -> None:
        """Take the next mini-batch, untimed; no graph work may happen here."""

    def upcoming(self, instances: Sequence[Any]) -> None:  # noqa: B027 - most look no further
        """Hear, after `load` and untimed, of the mini-batch that is loaded next.

        `run` may begin with it while it waits for a device: inside of its own time, and never for
        more than the one mini-batch that follows in the same pass.
        """

    @abstractmethod
    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Process the loaded mini-batch, marking each phase when it ends.

        In mode "train": construct, schedule, forward, backward and, if `update`, one step of plain
        SGD on the summed loss; in mode "infer": construct, schedule and forward (loss included).
        """

    def run_in_parts(self, clock: Clock, part: Part) -> None:
        """As `run`, with each batch, and each kernel that can be told apart, as a part of its own.

        For a timeline, never for a time: parts by themselves take longer than together. Where a
        system tells none apart its phases are all that the timeline shows.
        """
        self.run(clock)

    def listing(self) -> Mapping[str, Sequence[str]]:
        """Return the programs that `run` executes, as lines that a person can read, by name.

        A timeline's file has them; a system without any that can be listed returns none.
        """
        return {}

    @abstractmethod
    def result(self) -> Result:
        """Return what the last run computed."""

    @abstractmethod
    def parameters(self) -> Parameters:
        """Return the parameters as they are now, by the model's names and in its shapes.

        Untimed; copies, which no later run changes.
        """

    def last_loss(self) -> float:
        """Return the loss of the last run; override where this is cheaper than `result`."""
        return self.result().loss

    def counters(self) -> Counters:
        """Return the work of the last run; override where this is cheaper than `result`."""
        return self.result().counters

    def moving_share(self) -> float | None:
        """Return which share of forward and backward only moved data, of runs since last asked.

        None where it is not told, or was not asked for: telling may cost the trial its speed.
        """
        return None

    def peak_memory_bytes(self) -> int | None:
        """Return the peak of memory that only the framework sees (a GPU's); None for none."""
        return None

    def forget_peak_memory(self) -> None:  # noqa: B027 - most frameworks see the process's alone
        """Let that peak begin anew: called once, between the check and the timed passes."""

    def synchronize(self) -> None:  # noqa: B027 - nothing to wait for unless a device is involved
        """Wait until all work is done; called by the clock, also before `prepare`."""

    def in_force(self) -> dict[str, str]:
        """Return its options as it honours them, and the way it took (see Record.in_force)."""
        return in_words(self.options)

    def versions(self) -> dict[str, str]:
        """Framework build facts for the record (version, BLAS, source or wheel)."""
        return {}


def load_adapter(name: str) -> type[System]:
    """Import a system's adapter, and with it its framework.

    Raises UnsupportedTrial where the framework cannot be imported or is too old, ConfigError for
    no adapter.
    """
    try:
        adapter: type[System] = importlib.import_module(name).Adapter
    except ModuleNotFoundError as error:
        if error.name is not None and (name + ".").startswith(f"{error.name}."):
            message = f"system.adapter={name} is not a module"
            raise ConfigError(f"{message}; name one such as systems.null_system") from error
        missing = str(error.name).partition(".")[0]
        raise UnsupportedTrial(f"{missing} is not installed; {how_to_install(missing)}") from error
    except ImportError as error:
        raise UnsupportedTrial(f"{name} cannot be imported: {error}") from error
    except AttributeError as error:
        raise ConfigError(f"{name} has no class Adapter; name one that has") from error
    if adapter.framework is not None:
        version = str(sys.modules[adapter.framework].__version__)
        reason = why_too_old(adapter.framework, version)
        if reason is not None:
            raise UnsupportedTrial(reason)
    return adapter
