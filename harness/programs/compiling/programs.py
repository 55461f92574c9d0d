"""Compiled programs of a mini-batch, with their reusable memory and its inputs and outputs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynbatch.harness.compiler.object_code import load_ir
from dynbatch.harness.compiler.pointers import get_address
from dynbatch.harness.compiler.python_calls import make_callable
from dynbatch.harness.errors import ProgramError
from dynbatch.harness.programs.blocks import RecordingOptions
from dynbatch.harness.programs.compiling import fibers
from dynbatch.harness.programs.compiling.runtime import LENGTH, N_COLUMNS, START
from dynbatch.harness.programs.compiling.writer import TranslatedProgram
from dynbatch.harness.programs.decisions import Drawn
from dynbatch.harness.programs.fibers import MAX_FIBERS
from dynbatch.harness.programs.log import RESUME
from dynbatch.harness.programs.recorder import MAX_VERTICES
from dynbatch.harness.values.arrays import IntArray, as_int_array

MAX_ENTRIES = 2**26  # limit for logs, list items and lists: at most 0.5, 1 and 3 GiB
MANY = 100  # segments until control returns to Python, which handles signals
NOBODY = -1
STACKS = (fibers.READY, fibers.WAITING, fibers.FREE)  # stacks of frames, as large as FRAMES
# Words of the state that count the entries in use of buffers that grow.
_USED = np.array([fibers.LOG, fibers.ITEMS, fibers.LISTS, fibers.FRAMES, *STACKS]) + 1

TakeLog = Callable[[IntArray], None]


def _ignore_log(log: IntArray) -> None:
    """Do nothing: default if no compiled code runs the segments of a log."""


class CompiledPrograms:
    """Compiled programs: call begin, then go_on until it returns True.

    `log` contains the entries recorded since `clear`.

    Attributes:
        n_grown: number of reallocations; it stops growing once mini-batches are no larger than
            before.
    """

    def __init__(self, translation: TranslatedProgram, model: Any) -> None:
        self._loaded = load_ir(translation.text)
        self._go_on, self._alive = make_callable(
            "go_on", self._loaded.find_address("entry.python"), ()
        )
        self._constants, self._model, self.n_grown = translation.constants, model, 0
        self._state = np.zeros(fibers.N_STATE, dtype=np.int64)
        self._state[fibers.WIDTH] = translation.width
        self._arrays: dict[int, Any] = {}
        self._take_log: TakeLog = _ignore_log
        self._met: Exception | None = None
        self._grow = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(
            self._extend_buffer
        )
        self._state[fibers.GROW] = ctypes.cast(self._grow, ctypes.c_void_p).value or 0
        for at, shape, dtype in (
            (fibers.LOG, (), np.int32),
            (fibers.ITEMS, (), np.int64),
            (fibers.LISTS, (N_COLUMNS,), np.int64),
            (fibers.FRAMES, (translation.width,), np.int64),
            *((stack, (), np.int64) for stack in STACKS),
        ):
            self._put(at, np.zeros((0, *shape), dtype=dtype))

    def begin(
        self,
        instances: Sequence[Any],
        drawn: Sequence[Drawn],
        options: RecordingOptions,
        segments: tuple[int, int] | None = None,
        take_log: TakeLog = _ignore_log,
    ) -> None:
        """Start all programs.

        Args:
            segments: for interleaved execution the address of the function that runs a segment from
                the log, and its first argument.
            take_log: called with the log's buffer, now and after each reallocation.

        Raises:
            ProgramError: for an instance whose fields do not match its class.
        """
        n, state = len(instances), self._state
        state[fibers.N_INSTANCES :] = 0
        state[_USED] = 0
        self._take_log = take_log
        ints, reals = self._constants.read_numbers(self._model)
        self._fill(fibers.INTS, np.array(ints, dtype=np.int64))
        self._fill(fibers.REALS, np.array(reals, dtype=np.float64))
        seeds = [decisions.state for decisions in drawn]
        self._fill(fibers.SEEDS, np.array(seeds, dtype=np.uint64))
        self._fill(fibers.RESULTS, np.full(n, NOBODY, dtype=np.int64))
        self._take_fields(instances)
        self._make_room(fibers.FRAMES, max(1, n))
        frames = self._arrays[fibers.FRAMES]
        frames[:n, fibers.PC] = 0
        frames[:n, fibers.NUMBER] = frames[:n, fibers.INSTANCE] = np.arange(n)
        self._arrays[fibers.READY][:n] = np.arange(n)
        self._make_room(fibers.LOG, 2 * n)
        log = self._arrays[fibers.LOG]
        log[: 2 * n : 2], log[1 : 2 * n : 2] = RESUME, np.arange(n)
        take_log(log)
        for at in (fibers.N_READY, fibers.N_FRAMES, fibers.N_FIBERS, fibers.N_ALIVE):
            state[at] = n
        state[fibers.N_INSTANCES], state[fibers.N_LOG], state[fibers.RUNNING] = n, 2 * n, NOBODY
        state[fibers.MAX_ALIVE] = MAX_FIBERS * n
        state[fibers.MAX_VERTICES] = MAX_VERTICES * max(1, n)
        state[fibers.MAX_SEGMENTS] = MANY
        state[fibers.HAS_PHASES], state[fibers.HAS_GHOSTS] = options.phases, options.ghosts
        state[fibers.SEGMENT_AT], state[fibers.SEGMENTS] = segments or (0, 0)

    def _take_fields(self, instances: Sequence[Any]) -> None:
        """Copy what programs read of instances; arrays become the first lists, by field."""
        constants, state = self._constants, self._state
        fields = [getattr(instance, name) for name in constants.fields for instance in instances]
        if any(field.ndim != 1 for field in fields):
            raise ProgramError("a program reads an array of several dimensions")
        lengths = np.array([len(field) for field in fields], dtype=np.int64)
        n_items = int(lengths.sum())
        self._make_room(fibers.ITEMS, n_items)
        self._make_room(fibers.LISTS, len(fields))
        if fields:
            self._arrays[fibers.ITEMS][:n_items] = np.concatenate(fields)
        lists = self._arrays[fibers.LISTS][: len(fields)]
        lists[:, START] = lengths.cumsum() - lengths
        lists[:, LENGTH:] = lengths[:, None]
        state[fibers.N_ITEMS], state[fibers.N_LISTS] = n_items, len(fields)

    def go_on(self) -> bool:
        """Run fibers until they end, or until others must run the rest of a segment (see `left`).

        Returns:
            True if all fibers have ended.

        Raises:
            ProgramError: for an invalid program; other exceptions are possible. Python must then
                run the programs to find the error.
        """
        try:
            code = int(self._go_on(get_address(self._state)))
        except MemoryError:
            if self._met is None:
                raise
            raise self._met from None
        self._check_end()
        return code == fibers.ENDED

    def _check_end(self) -> None:
        if self._state[fibers.N] > self._state[fibers.MAX_VERTICES]:
            raise ProgramError("a program calls blocks without end")

    @property
    def left(self) -> int:
        """Result of the function that runs segments, or UNDONE."""
        return int(self._state[fibers.LEFT_OVER])

    def start_next_segment(self) -> None:
        """Resume the waiting fibers: their segment has run."""
        self._state[fibers.IS_NEXT_SEGMENT] = 1

    @property
    def n_log(self) -> int:
        """Number of entries in the log."""
        return int(self._state[fibers.N_LOG])

    @property
    def log(self) -> IntArray:
        """Entries recorded since `clear`; later ones overwrite them."""
        log: IntArray = self._arrays[fibers.LOG]
        return log[: self.n_log]

    def clear(self) -> None:
        """Clear the log after it was read."""
        self._state[fibers.N_LOG] = 0

    @property
    def n_segments(self) -> int:
        """Number of graph segments before the last one."""
        return int(self._state[fibers.N_SEGMENTS])

    def outputs(self) -> IntArray:
        """Return the results of all programs, in the order of the instances.

        Raises:
            ProgramError: for a result that no block computed.
        """
        lists, items = self._arrays[fibers.LISTS], self._arrays[fibers.ITEMS]
        results = [
            items[start : start + length]
            for start, length, _ in lists[self._arrays[fibers.RESULTS]].tolist()
        ]
        vertices = np.concatenate([np.zeros(0, dtype=np.int64), *results])
        if len(vertices) and not 0 <= vertices.min() <= vertices.max() < self._state[fibers.N]:
            raise ProgramError("a program returns what no block computed")
        return as_int_array(vertices)

    def _put(self, at: int, array: Any) -> None:
        """Store an array and its address in a word of the state."""
        self._arrays[at], self._state[at] = array, get_address(array)

    def _fill(self, at: int, values: Any) -> None:
        """Copy values to an array, whose address stays the same while its shape does."""
        array = self._arrays.get(at)
        if array is not None and array.shape == values.shape:
            array[...] = values
        else:
            self._put(at, values)

    def _extend_buffer(self, at: int, n: int) -> int:
        """Extend a buffer for compiled code; return 1 if that failed, otherwise 0."""
        try:
            self._check_end()
            self._make_room(at, n)
        except Exception as error:
            self._met = error
            return 1
        return 0

    def _make_room(self, at: int, n: int) -> None:
        """Reallocate a buffer with twice the needed capacity if it is too small."""
        if n <= len(self._arrays[at]):
            return
        if n > MAX_ENTRIES:
            raise ProgramError("a program does not terminate")
        for buffer in (at, *STACKS) if at == fibers.FRAMES else (at,):
            array = self._arrays[buffer]
            larger = np.zeros((2 * n, *array.shape[1:]), dtype=array.dtype)
            larger[: len(array)] = array
            self._put(buffer, larger)
            self.n_grown += 1
        if at == fibers.LOG:
            self._take_log(self._arrays[at])
        self._state[at + 2] = 2 * n
