"""The interface of a backend, which executes plans on memory of its own, and how one is found.

A backend is a folder of harness/engine/backends/ whose module `backend` defines `Backend`; the
contract that tests/engine/test_backends.py runs over all of them is the other half of this file.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.contracts.model import Weights
from harness.contracts.timeline import Details, Part
from harness.engine.lowering.plan import Abilities, Plan, Ref
from harness.engine.rows.fields import Index
from harness.engine.rows.layout import Layout, Loss, Round, RowRules, Run
from harness.engine.switches import DEFAULT_BACKENDS, Switches
from harness.errors import ConfigError, UnsupportedTrial
from harness.programs.blocks import Feeds
from harness.programs.decoder import Decoder
from harness.values.arrays import IntArray
from harness.values.places import ROOT
from harness.values.schedule import Schedule

EVERY = slice(None)
Naming = Callable[[str, int, int], tuple[str, Details]]  # of a stage's (type id, position)
_FOLDER = ROOT / "harness" / "engine" / "backends"


@dataclass(frozen=True, eq=False, slots=True)
class Arrangement:
    """Where the rows of one mini-batch are: NumPy only, and a value that is made at once.

    types: of every vertex function that has rows, by id; output functions have ids below 0. A
    geometry is made when one asks for it; a backend may find all arrays by their numbers instead.
    n_rows: rows of every state that a function scatters.
    rounds, backward: what will be run, in order, for backends that write it down beforehand.
    kept_rows: of every state, the first rows that an earlier arrangement has filled, and that still
    hold (Backend.keeps_states); none where that is left out.
    """

    types: Layout
    n_rows: Mapping[str, int]
    rounds: Sequence[Round] = ()
    backward: Sequence[Run] = ()
    kept_rows: Mapping[str, int] = field(default_factory=dict)

    @property
    def forward(self) -> list[Run]:
        """What all rounds run, in order."""
        return [run for one in self.rounds for run in one.runs]


@dataclass(slots=True)
class Tally:
    """Work since the last reset: kernels started, and bytes copied by gathers and scatters.

    n_moving_cycles, n_cycles: with the switch `profile`, the processor's ticks in steps that only
    move data, and in forward and backward as the engine's caller times them, with all Python
    between stages, of all runs since these two were last reset.
    """

    n_launches: int = 0
    bytes_copied: int = 0
    n_moving_cycles: int = 0
    n_cycles: int = 0


class LiveRounds(Protocol):
    """Rounds that compiled code plans: see harness.engine.backends.compiled.live_rounds."""

    decoder: Decoder | None

    @property
    def maker(self) -> tuple[int, int]: ...
    @property
    def n_vertices(self) -> int: ...
    @property
    def row(self) -> IntArray: ...
    @property
    def used(self) -> Index: ...
    def begin(self, decoder: Decoder, known_feeds: Feeds) -> None: ...
    def pack(self, log: list[int]) -> int: ...
    def take_log(self, log: IntArray) -> None: ...
    def watch(self) -> None: ...
    def run(self, n: int, left: int, take_feeds: Callable[[Feeds], None]) -> None: ...
    def catch_up(self) -> dict[str, float]: ...
    def end(self) -> None: ...
    def schedules(self) -> list[tuple[int, Schedule]]: ...


class Backend(ABC):
    """Executes the stages of plans, batch by batch or in one call, and owns all memory.

    Order of calls: load, compile (again where functions join), then for every mini-batch arrange,
    run for each stage, read; in training clear_gradients before the backward stages, and gradients
    or update behind them.
    """

    abilities: ClassVar[Abilities]
    keeps_states: ClassVar[bool] = False  # whether states outlast the next arrangement

    def __init__(self, switches: Switches, device: str, threads: int) -> None:
        self.switches, self.device, self.threads = self.in_force(switches), device, threads
        self.tally = Tally()

    def ticks(self) -> int:
        """The processor's counter with the switch `profile`; else 0, at no cost."""
        return 0

    @classmethod
    @abstractmethod
    def why_not(cls, switches: Switches, device: str) -> str | None:
        """Return why this cannot run here at all, and what to do; None where it can."""

    @classmethod
    def in_force(cls, switches: Switches) -> Switches:
        """The switches that it honours of those asked for; what is turned off, a record shows."""
        return replace(switches, fusion=switches.fusion and cls.abilities.fuses)

    @abstractmethod
    def load(self, weights: Weights) -> None:
        """Take the initial weights, of which it makes its own copy."""

    @abstractmethod
    def compile(self, plans: Mapping[int, Plan]) -> None:
        """Take the plans of all functions by id; those that it knows already have not changed."""

    def n_programs(self) -> int | None:
        """How many programs were written and compiled so far; None where none ever is."""
        return None

    def prepare(self, rows: Arrangement) -> None:  # noqa: B027 - nothing, unless work overlaps
        """Begin with a mini-batch that is arranged next, while this one is computed.

        All that this one runs was started by then; what it left can be read until `arrange`.
        """

    @abstractmethod
    def arrange(self, rows: Arrangement) -> None:
        """Take the next mini-batch's rows, and make room for them.

        Comes before every pass: what was gathered, or made of the weights, holds until then.
        """

    def rounds_by(self, rules: RowRules) -> LiveRounds | None:
        """Rounds that compiled code plans, of functions that are all known; None without such."""
        return None

    @abstractmethod
    def run(self, stage: str, batches: IntArray) -> None:
        """Run a stage of every batch (type id, position) (k, 2) in order.

        A position may be ALL_ROWS, which is all rows of a function at once: in stages before and
        behind the batches, and in the backward stage of an output function.
        """

    def run_together(self, runs: Sequence[Run]) -> None:
        """Run all that Arrangement.forward holds, or all of Arrangement.backward."""
        for stage, batches in runs:
            self.run(stage, batches)

    def run_rounds(
        self, rounds: Sequence[Round], run: Callable[[Sequence[Run]], None] | None = None
    ) -> Callable[[], float]:
        """Run all rounds, each whole, outputs too; return what gives the sum of their losses.

        The loss of a round is here before the next one starts, but where losses stay on a device
        until they are asked for.

        run: what runs a round in place of `run_together`, for a timeline.
        """
        found: list[Callable[[], float]] = []
        for one in rounds:
            (run or self.run_together)(one.runs)
            found.append(self.later(one.losses))
        return lambda: sum(loss() for loss in found)

    def run_in_parts(self, runs: Sequence[Run], part: Part, words: Naming) -> None:
        """As run_together, each batch by itself as a part; for a timeline.

        words: the name and details of a batch.
        """
        for stage, batches in runs:
            for batch in batches:
                name, details = words(stage, *batch.tolist())
                with part("batch", name, details) as found:
                    before = self.tally.n_launches, self.tally.bytes_copied
                    self._run_batch_in_parts(stage, batch, part)
                    found["kernels"] = self.tally.n_launches - before[0]
                    found["bytes copied"] = self.tally.bytes_copied - before[1]

    def _run_batch_in_parts(self, stage: str, batch: IntArray, part: Part) -> None:
        """One batch (type id, position) (2,), its kernels as parts where they can be told apart."""
        self.run(stage, batch[None])

    @abstractmethod
    def read(self, type_id: int, ref: Ref, rows: slice = EVERY) -> NDArray[np.float32]:
        """Return columns of a function's rows (n, width), in the order of its batches.

        Waits for what computes them.
        """

    def read_states(self, state: str, rows: Index) -> NDArray[np.float32]:
        """Return these rows of a state (k, width), where the backend keeps states.

        Waits for what computes them.
        """
        raise UnsupportedTrial(f"{type(self).__module__} keeps no states; use backend=compiled")

    def later(self, losses: Sequence[Loss]) -> Callable[[], float]:
        """Return what gives the sum of these losses, as it is now; waits when it is called."""
        found = sum(float(self.read(*loss).sum()) for loss in losses)
        return lambda: found

    @abstractmethod
    def clear_gradients(self) -> None:
        """Forget the gradients of the last mini-batch, of parameters and of states."""

    @abstractmethod
    def gradients(self) -> Weights:
        """Return dense gradients of all parameters that were loaded."""

    @abstractmethod
    def update(self, learning_rate: float) -> None:
        """One step of plain SGD."""

    @abstractmethod
    def weights(self) -> Weights:
        """Return the parameters as they are now."""

    def synchronize(self) -> None:  # noqa: B027 - nothing to wait for unless a device is involved
        """Wait until all work is done."""

    def facts(self) -> dict[str, str]:
        """What a record should say of how it ran: libraries, and the path that was taken."""
        return {}

    def versions(self) -> dict[str, str]:
        """Versions of what computes."""
        return {}

    def listing(self) -> Mapping[str, Sequence[str]]:
        """Return the program of each stage as lines that a person can read."""
        return {}

    def peak_memory_bytes(self) -> int | None:
        """Peak of memory that only the device sees; None on the CPU."""
        return None

    def forget_peak_memory(self) -> None:  # noqa: B027 - on the CPU the process's counts
        """Let that peak begin anew."""


def backend_names() -> tuple[str, ...]:
    """Names of all backends, found without importing any of them."""
    return tuple(sorted(path.parent.name for path in _FOLDER.glob("*/backend.py")))


def backend_class(name: str) -> type[Backend]:
    """Import a backend, and with it the library that it stands on.

    Raises ConfigError for a name that is none, UnsupportedTrial where a library is missing.
    """
    if name not in backend_names():
        known = ", ".join(("auto", *backend_names()))
        raise ConfigError(f"backend={name} is unknown; choose one of {known}")
    try:
        module = importlib.import_module(f"harness.engine.backends.{name}.backend")
    except ModuleNotFoundError as error:
        raise UnsupportedTrial(
            f"backend={name} needs {error.name}, which is not installed; install it to run it"
        ) from error
    found: type[Backend] = module.Backend
    return found


def choose_backend(
    switches: Switches, device: str, operators: Collection[str] = ()
) -> type[Backend]:
    """Return the backend that was asked for, or the first of this device's own that can.

    operators: those of the functions that it will run, where they are known. Raises
    UnsupportedTrial where none can run what is asked, in its own words.
    """
    found, reasons = _first_that_can(switches, device, operators)
    if found is None:
        raise UnsupportedTrial("; ".join(reasons))
    return found


def passed_over(switches: Switches, device: str, operators: Collection[str] = ()) -> str:
    """Why the chosen backend is not the first of its device's own; nothing where it is."""
    return "; ".join(_first_that_can(switches, device, operators)[1])


def _first_that_can(
    switches: Switches, device: str, operators: Collection[str]
) -> tuple[type[Backend] | None, list[str]]:
    asked, reasons = switches.backend, list[str]()
    for name in DEFAULT_BACKENDS[device] if asked == "auto" else (asked,):
        found = backend_class(name)
        reason = found.why_not(switches, device)
        missing = sorted({*operators} - found.abilities.operators)
        if reason is None and missing:
            reason = f"it has no kernel for {', '.join(missing)}; use backend=stepwise"
        if reason is None:
            return found, reasons
        reasons.append(f"backend={name}: {reason}")
    return None, reasons
