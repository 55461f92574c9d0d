"""Interface of backends, which execute plans and own all memory, and their selection.

A backend is a directory of harness/engine/backends/ whose module `backend` defines `Backend`.
tests/engine/test_backends.py checks all backends against this interface.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Weights
from dynbatch.harness.engine.lowering.plan import Abilities, Plan, Ref
from dynbatch.harness.engine.rows.fields import Index
from dynbatch.harness.engine.rows.layout import Layout, RowRules
from dynbatch.harness.engine.rows.segments import Loss, Run, Segment
from dynbatch.harness.engine.switches import DEFAULT_BACKENDS, Switches
from dynbatch.harness.errors import ConfigError, UnsupportedTrial
from dynbatch.harness.programs.blocks import Feeds
from dynbatch.harness.programs.decoder import Decoder
from dynbatch.harness.values.arrays import IntArray
from dynbatch.harness.values.paths import ROOT
from dynbatch.harness.values.schedule import Schedule
from dynbatch.harness.vertex.shared_products import RowBlock

EVERY = slice(None)
_FOLDER = ROOT / "harness" / "engine" / "backends"


@dataclass(frozen=True, eq=False, slots=True)
class Arrangement:
    """Rows of one mini-batch and the batches to run, in NumPy arrays.

    Attributes:
        types: The geometry of every vertex function that has rows, by id; output functions have ids
            below 0. A geometry is created on first access. Backends may address all arrays by
            number instead.
        n_rows: The number of rows of every state that a function scatters.
        segments: The graph segments to run, in order, for backends that prepare them in advance.
        backward: The stages and batches of the backward pass, in order, for the same backends.
        kept_rows: For every state, the number of first rows that an earlier arrangement has filled
            and that are still valid (Backend.keeps_states); none if the state is missing.
    """

    types: Layout
    n_rows: Mapping[str, int]
    segments: Sequence[Segment] = ()
    backward: Sequence[Run] = ()
    kept_rows: Mapping[str, int] = field(default_factory=dict)

    @property
    def forward(self) -> list[Run]:
        """Stages and batches of all graph segments, in order."""
        return [run for segment in self.segments for run in segment.runs]


@dataclass(slots=True)
class Tally:
    """Work since the last reset.

    Attributes:
        n_moving_cycles: With the switch `profile`, the processor's ticks in steps that only move
            data.
        n_cycles: With the same switch, the ticks of forward and backward as the engine's caller
            times them, with all Python between stages. These two counters are reset separately.
    """

    n_launches: int = 0
    bytes_copied: int = 0
    n_moving_cycles: int = 0
    n_cycles: int = 0


class LiveSegments(Protocol):
    """Graph segments that compiled code plans; see backends/compiled/live_segments.py."""

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
    def list_schedules(self) -> list[tuple[int, Schedule]]: ...


class Backend(ABC):
    """Executor of the stages of plans, batch by batch or in one call, and owner of all memory.

    Order of calls: load, compile (again if functions are added); then, for every mini-batch,
    arrange, run_together, read. In training, clear_gradients comes before the backward
    stages, and gradients or update after them.
    """

    abilities: ClassVar[Abilities]
    keeps_states: ClassVar[bool] = False  # states survive the next arrangement

    def __init__(self, switches: Switches, device: str, threads: int) -> None:
        self.switches = replace(  # records show those that the backend turns off
            switches,
            fusion=switches.fusion and self.abilities.fuses,
            share_products=switches.share_products and self.abilities.reads_row_blocks,
        )
        self.device, self.threads, self.tally = device, threads, Tally()

    def read_ticks(self) -> int:
        """Return the processor's counter with the switch `profile`, else 0 at no cost."""
        return 0

    @classmethod
    @abstractmethod
    def explain_unavailable(cls, switches: Switches, device: str) -> str | None:
        """Return the reason why this backend cannot run here, with a fix; None if it can."""

    @abstractmethod
    def load(self, weights: Weights) -> None:
        """Copy the initial weights."""

    def view_rows(self, blocks: Iterable[RowBlock]) -> None:
        """Make rows of parameters readable as parameters; an update of either changes both.

        Raises:
            UnsupportedTrial: The backend does not read row blocks.
        """
        raise UnsupportedTrial(
            f"{type(self).__module__} does not read row blocks; use share_products=false"
        )

    @abstractmethod
    def compile(self, plans: Mapping[int, Plan]) -> None:
        """Compile the plans of all functions, by id; plans that are already known do not change."""

    def count_programs(self) -> int | None:
        """Return the number of programs compiled so far; None if the backend never compiles."""
        return None

    @abstractmethod
    def arrange(self, rows: Arrangement) -> None:
        """Set the rows of the next mini-batch, and allocate memory for them.

        This call precedes every pass. Gathered values and values derived from weights are valid
        until the next call.
        """

    def make_live_segments(self, rules: RowRules) -> LiveSegments | None:
        """Return an object that plans graph segments in compiled code, or None if there is none.

        All functions must be known.
        """
        return None

    @abstractmethod
    def run_together(self, runs: Sequence[Run]) -> None:
        """Run stages one after the other, each with its batches (type id, position) (k, 2).

        They are everything in Arrangement.forward, or in one of its segments, or everything in
        Arrangement.backward. A position may be ALL_ROWS, that is all rows of a function in one
        call: in stages before and after the batches, and in the backward stage of an output
        function.
        """

    def run_segments(self, segments: Sequence[Segment]) -> Callable[[], float]:
        """Run all graph segments, each completely with its outputs, one after the other.

        The loss of a segment is read before the next segment starts, unless losses stay on a device
        until they are requested.

        Returns:
            A function that returns the sum of the losses.
        """
        losses: list[Callable[[], float]] = []
        for segment in segments:
            self.run_together(segment.runs)
            losses.append(self.defer_losses(segment.losses))
        return lambda: sum(loss() for loss in losses)

    @abstractmethod
    def read(self, type_id: int, ref: Ref, rows: slice = EVERY) -> NDArray[np.float32]:
        """Return columns of a function's rows (n, width), in the order of its batches.

        Waits until they are computed.
        """

    def read_states(self, state: str, rows: Index) -> NDArray[np.float32]:
        """Return these rows of a state (k, width), if the backend keeps states.

        Waits until they are computed.

        Raises:
            UnsupportedTrial: The backend does not keep states.
        """
        raise UnsupportedTrial(
            f"{type(self).__module__} does not store states; use backend=compiled"
        )

    def defer_losses(self, losses: Sequence[Loss]) -> Callable[[], float]:
        """Return a function that waits for these losses and returns their sum.

        The sum is that of the losses at the time of this call.
        """
        total = sum(float(self.read(*loss).sum()) for loss in losses)
        return lambda: total

    @abstractmethod
    def clear_gradients(self) -> None:
        """Clear the gradients of parameters and states of the last mini-batch."""

    @abstractmethod
    def gradients(self) -> Weights:
        """Return dense gradients of all parameters that were loaded."""

    @abstractmethod
    def update(self, learning_rate: float) -> None:
        """Take one step of plain SGD."""

    @abstractmethod
    def read_weights(self) -> Weights:
        """Return the current parameters."""

    def synchronize(self) -> None:  # noqa: B027 - nothing to wait for unless a device is involved
        """Wait until all work is done."""

    def facts(self) -> dict[str, str]:
        """Return facts about the execution for a record, such as libraries and the chosen path."""
        return {}

    def list_versions(self) -> dict[str, str]:
        """Return the versions of the libraries that compute."""
        return {}

    def read_peak_memory(self) -> int | None:
        """Return the peak of device memory; None on the CPU."""
        return None

    def reset_peak_memory(self) -> None:  # noqa: B027 - on the CPU, the peak of the process counts
        """Reset the peak of device memory."""


def list_backends() -> tuple[str, ...]:
    """Return the names of all backends without importing any of them."""
    return tuple(sorted(path.parent.name for path in _FOLDER.glob("*/backend.py")))


def load_backend(name: str) -> type[Backend]:
    """Import a backend together with its library.

    Raises:
        ConfigError: No backend has this name.
        UnsupportedTrial: A library is missing.
    """
    if name not in list_backends():
        known = ", ".join(("auto", *list_backends()))
        raise ConfigError(f"backend={name} is unknown; choose one of {known}")
    try:
        module = importlib.import_module(f"dynbatch.harness.engine.backends.{name}.backend")
    except ModuleNotFoundError as error:
        raise UnsupportedTrial(
            f"backend={name} needs {error.name}, which is not installed; install it"
        ) from error
    backend: type[Backend] = module.Backend
    return backend


def choose_backend(
    switches: Switches, device: str, operators: Collection[str] = ()
) -> tuple[type[Backend], str]:
    """Return the requested backend, or the device's first default backend that can run.

    Args:
        operators: The operators of the functions that it will run, if they are known.

    Returns:
        The backend, and the reasons why earlier default backends cannot run, if there are any.

    Raises:
        UnsupportedTrial: No backend can run them; the message has the reason of each.
    """
    asked, reasons = switches.backend, list[str]()
    for name in DEFAULT_BACKENDS[device] if asked == "auto" else (asked,):
        backend = load_backend(name)
        reason = backend.explain_unavailable(switches, device)
        if switches.streams and not backend.abilities.streams:
            reason = "it has no second stream; use hoisting=true, or backend=cuda on a GPU"
        missing = sorted({*operators} - backend.abilities.operators)
        if reason is None and missing:
            reason = f"it has no kernel for {', '.join(missing)}; use backend=stepwise"
        if reason is None:
            return backend, "; ".join(reasons)
        reasons.append(f"backend={name}: {reason}")
    raise UnsupportedTrial("; ".join(reasons))
