"""Translated programs of a mini-batch: their memory, which is kept, and what fills and reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from harness.compiler.generated import load_generated
from harness.errors import CompileError, ProgramError
from harness.programs.blocks import RecordingOptions
from harness.programs.compiling.kept_lists import LENGTH, START
from harness.programs.compiling.texts import INSTANCE, NUMBER
from harness.programs.compiling.translation import Translation
from harness.programs.compiling.written import (
    ARRAYS,
    ASKED,
    ENDED,
    MORE,
    MORE_FRAMES,
    MORE_ITEMS,
    MORE_LOG,
    PLACES,
    UNDONE,
    written,
)
from harness.programs.decisions import Drawn
from harness.programs.fibers import MOST_FIBERS
from harness.programs.log import RESUME
from harness.programs.recorder import MOST_VERTICES
from harness.values.arrays import IntArray, int_array

MOST_ENTRIES = 2**26  # of a log, of lists' items, of lists: at most 0.5, 1 and 3 GiB
NOBODY = -1
OF_FRAMES = ("F", "R", "ready", "waiting", "free", "asked")
OF_BLOCKS = {"log": "n_log", "items": "n_items", "lists": "n_lists"}  # and how much of it is used
WANTED = {MORE: "", MORE_LOG: "log", MORE_ITEMS: "items"}  # where more than a margin is wanted


class Numbers(Protocol):
    """Reads a number of a state of each vertex: see harness.engine.live.LiveEngine.numbers."""

    def __call__(
        self, state: str, vertices: Sequence[int], columns: Sequence[int]
    ) -> Sequence[float]: ...


def _no_numbers(state: str, vertices: Sequence[int], columns: Sequence[int]) -> Sequence[float]:
    raise ProgramError("a program waits for a number that must be computed first")


TakeLog = Callable[[IntArray], None]


def _no_log(log: IntArray) -> None:
    """Nobody makes rounds of it in compiled code."""


class CompiledPrograms:
    """begin, then go_on until it says that all have ended; log has what was recorded since `clear`.

    n_grown: how often memory was made anew; none of it once mini-batches are no larger.
    """

    def __init__(self, translation: Translation, model: Any) -> None:
        found = written(translation)
        self._go_on: Callable[..., Any] = load_generated(found.text, "go_on")
        self._constants, self._model = translation.constants, model
        self._margin, self.n_grown = found.margin, 0
        widths = {"F": translation.n_slots, "R": max(1, translation.n_reals), "asked": 5}
        self._arrays: dict[str, Any] = {
            name: np.zeros((0, widths[name]) if name in widths else 0, dtype=np.int64)
            for name in ARRAYS
        }
        self._arrays["state"] = np.zeros(len(PLACES), dtype=np.int64)
        self._arrays["R"] = np.zeros((0, widths["R"]))
        self._arrays["lists"] = np.zeros((0, 3), dtype=np.int64)
        self._arrays["log"] = np.zeros(0, dtype=np.int32)
        self._states = tuple(self._constants.states)
        self._numbers: Numbers = _no_numbers
        self._take_log: TakeLog = _no_log
        self._log_taken: IntArray | None = None

    @property
    def asks(self) -> bool:
        """Whether any number has to be computed, so that rounds must be live."""
        return bool(self._states)

    def begin(
        self,
        instances: Sequence[Any],
        drawn: Sequence[Drawn],
        options: RecordingOptions,
        numbers: Numbers | None = None,
        rounds: tuple[int, int] = (0, 0),
        take_log: TakeLog = _no_log,
    ) -> None:
        """Begin all programs.

        numbers: where rounds are live, what reads a round that has run. rounds: the address of what
        makes a round of what is in the log, and what it is given first; take_log: what has to know
        where that is, before.

        Raises ProgramError for an instance whose fields are not those of its class.
        """
        n = len(instances)
        state, arrays = self._arrays["state"], self._arrays
        state[:] = 0
        self._numbers = _no_numbers if numbers is None else numbers
        self._take_log, self._log_taken = take_log, None
        ints, reals = self._constants.numbers_of(self._model)
        arrays["ints"] = np.array(ints, dtype=np.int64)
        arrays["reals"] = np.array(reals, dtype=np.float64)
        arrays["seeds"] = np.array([one.state for one in drawn], dtype=np.uint64)
        arrays["results"] = np.full(n, NOBODY, dtype=np.int64)
        self._take_fields(instances)
        self._make_room(OF_FRAMES, max(1, n))
        for name in ("n_ready", "n_frames", "n_fibers", "n_alive"):
            state[PLACES[name]] = n
        F = arrays["F"]
        F[:n] = NOBODY
        F[:n, 0] = 0
        F[:n, NUMBER] = F[:n, INSTANCE] = arrays["ready"][:n] = np.arange(n)
        self._make_room(("log",), 2 * n + self._margin)
        arrays["log"][: 2 * n : 2], arrays["log"][1 : 2 * n : 2] = RESUME, np.arange(n)
        rules = {"most_alive": MOST_FIBERS * n, "is_live": numbers is not None}
        rules |= {"has_phases": options.phases, "has_ghosts": options.ghosts}
        rules |= {"most_vertices": MOST_VERTICES * max(1, n), "left": UNDONE}
        rules |= dict(zip(("round_at", "rounds"), rounds, strict=True))
        rules |= {"n_log": 2 * n, "f": NOBODY, "running": NOBODY}
        for name, value in rules.items():
            state[PLACES[name]] = value

    def _take_fields(self, instances: Sequence[Any]) -> None:
        """What programs read of their instances: lists first, in the order of fields."""
        n, constants = len(instances), self._constants
        counts = np.zeros((max(1, len(constants.counts)), n), dtype=np.int64)
        for name, place in constants.counts.items():
            counts[place] = [getattr(one, name) for one in instances]
        self._arrays["counts"] = counts
        fields = [getattr(one, name) for name in constants.fields for one in instances]
        if any(field.ndim != 1 for field in fields):
            raise ProgramError("a program reads an array of several dimensions")
        lengths = np.array([len(field) for field in fields], dtype=np.int64)
        n_items = int(lengths.sum())
        self._make_room(("items",), n_items + self._margin)
        self._make_room(("lists",), len(fields) + self._margin)
        if fields:
            self._arrays["items"][:n_items] = np.concatenate(fields)
        lists = self._arrays["lists"][: len(fields)]
        lists[:, START] = np.cumsum(lengths) - lengths
        lists[:, LENGTH:] = lengths[:, None]
        state = self._arrays["state"]
        state[PLACES["n_items"]], state[PLACES["n_lists"]] = n_items, len(fields)

    def go_on(self) -> bool:
        """Run fibers until a round has ended that is left to others; returns whether all have.

        What is left of it says `left`.

        Raises ProgramError and other faults of programs, which have then to be run by Python.
        """
        state = self._arrays["state"]
        while True:
            code = self._called()
            if state[PLACES["odd"]]:
                raise OverflowError("a number of 32 bits is needed")
            if state[PLACES["n"]] > state[PLACES["most_vertices"]]:
                raise ProgramError("a program calls blocks without end")
            if code == MORE_FRAMES:
                self._make_room(OF_FRAMES, int(state[PLACES["n_frames"]] + state[PLACES["want"]]))
            elif code in WANTED:
                for name, used in OF_BLOCKS.items():
                    want = int(state[PLACES["want"]]) if name == WANTED[code] else 0
                    self._make_room((name,), int(state[PLACES[used]]) + want + self._margin)
            elif code == ASKED:
                self._answer(int(state[PLACES["n_asked"]]) - 1)
            else:
                return code == ENDED

    @property
    def left(self) -> int:
        """DONE or UNDONE, or what the maker of rounds returned."""
        return int(self._arrays["state"][PLACES["left"]])

    def _called(self) -> int:
        if self._log_taken is not self._arrays["log"]:
            self._log_taken = self._arrays["log"]
            self._take_log(self._log_taken)
        try:
            return int(self._go_on(*self._arrays.values()))
        except CompileError as error:
            raise ProgramError(f"the compiler refuses it: {error}") from error

    def next_round(self) -> None:
        """The round that has ended has run: those that waited go on."""
        state = self._arrays["state"]
        state[PLACES["is_next_round"]] = 1
        if self._states:
            self._answer(0)

    def _answer(self, first: int) -> None:
        """Read what was asked for from place `first` on."""
        state = self._arrays["state"]
        asked = self._arrays["asked"][first : state[PLACES["n_asked"]]]
        for number, name in enumerate(self._states):
            frames, of, _, columns, places = asked[asked[:, 2] == number].T
            if len(frames):
                found = self._numbers(name, of.tolist(), columns.tolist())
                self._arrays["R"][frames, places] = found
        state[PLACES["n_asked"]] = first

    @property
    def n_log(self) -> int:
        """How many entries of the log there are."""
        return int(self._arrays["state"][PLACES["n_log"]])

    @property
    def log(self) -> IntArray:
        """What was recorded since `clear`: written over by what comes next."""
        log: IntArray = self._arrays["log"]
        return log[: self.n_log]

    def clear(self) -> None:
        """The log was read."""
        self._arrays["state"][PLACES["n_log"]] = 0

    @property
    def n_rounds(self) -> int:
        """Rounds that have ended, and that others followed."""
        return int(self._arrays["state"][PLACES["n_rounds"]])

    def outputs(self) -> IntArray:
        """What all programs returned, in the order of the instances.

        Raises ProgramError for what no block computed.
        """
        lists, items = self._arrays["lists"], self._arrays["items"]
        found = [
            items[start : start + length]
            for start, length, _ in lists[self._arrays["results"]].tolist()
        ]
        vertices = np.concatenate([np.zeros(0, dtype=np.int64), *found])
        if len(vertices) and not 0 <= vertices.min() <= vertices.max() < self._n:
            raise ProgramError("a program returns what no block computed")
        return int_array(vertices)

    @property
    def _n(self) -> int:
        return int(self._arrays["state"][PLACES["n"]])

    def _make_room(self, names: Sequence[str], n: int) -> None:
        """Twice as much as is needed, where there is less."""
        for name in names:
            array = self._arrays[name]
            if len(array) >= n:
                continue
            if n > MOST_ENTRIES:
                raise ProgramError("a program goes on without end")
            larger = np.zeros((2 * n, *array.shape[1:]), dtype=array.dtype)
            larger[: len(array)] = array
            self._arrays[name] = larger
            self.n_grown += 1
