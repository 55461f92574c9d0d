"""Graph segments that compiled code decodes, schedules, lays out and runs.

The compiled functions for the policy inline_depth and for the layout are the same as elsewhere
(dynbatch.harness.engine.backends.compiled.live_code). This module manages the reused memory on
which they work.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import get_address
from dynbatch.harness.compiler.pointers import FAILED, WORDS_OF_ARRAY
from dynbatch.harness.engine.backend import Arrangement, Tally
from dynbatch.harness.engine.backends.compiled import live_code as code
from dynbatch.harness.engine.backends.compiled.arguments import AddressTable
from dynbatch.harness.engine.backends.compiled.live_code import (
    LiveArrays,
    decode_next,
    plan_next,
    run_segment,
)
from dynbatch.harness.engine.backends.compiled.memory import Memory
from dynbatch.harness.engine.backends.compiled.program import StageProgram
from dynbatch.harness.engine.cpu_kernels.context import read_ticks
from dynbatch.harness.engine.cpu_kernels.team import Table, Team
from dynbatch.harness.engine.lowering.plan import FORWARD
from dynbatch.harness.engine.rows.fields import Index
from dynbatch.harness.engine.rows.layout import Layout, RowRules
from dynbatch.harness.engine.rows.row_order import N_COUNTS, N
from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.programs.blocks import Feeds
from dynbatch.harness.programs.decode import FINE, DecodingArrays, check_fault
from dynbatch.harness.programs.decoder import Decoder
from dynbatch.harness.programs.log import DONE, UNDONE
from dynbatch.harness.values.arrays import IntArray, as_int_array
from dynbatch.harness.values.graph import NO_TYPE
from dynbatch.harness.values.schedule import Schedule

KindOf = Callable[[int, str], tuple[bool, bool]]  # for a function and a stage, see CompiledSegments


class KeptArrays:
    """Arrays by name, which compiled code finds by one address (view_arrays).

    Attributes:
        table: (n, WORDS_OF_ARRAY), the address and the sizes of each array.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.numbers = {name: k for k, name in enumerate(names)}
        self.table: Table = np.zeros((len(self.numbers), WORDS_OF_ARRAY), dtype=np.int64)
        self.address = get_address(self.table)
        self._arrays: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def put(self, **arrays: NDArray[Any]) -> None:
        """Replace arrays.

        Raises:
            TypeError: An array is not C-contiguous.
        """
        for name, array in arrays.items():
            if not array.flags.c_contiguous:
                raise TypeError(f"expected a C-contiguous array, got {name} of shape {array.shape}")
            self._arrays[name] = array
            self.table[self.numbers[name], : 1 + array.ndim] = get_address(array), *array.shape

    def make_room(self, name: str, n: int) -> None:
        """Extend an array to at least n rows, with its content."""
        array = self._arrays[name]
        if n > len(array):
            larger = np.zeros((2 * n, *array.shape[1:]), dtype=array.dtype)
            larger[: len(array)] = array
            self.put(**{name: larger})


def divide_ticks(planning: int, running: int, elapsed: int) -> dict[str, float]:
    """Return the fractions of the elapsed ticks that two phases took, together at most 1.

    Any of the three may be 0 or less: a virtual machine that moves may set its counter back.
    """
    planning, running = max(planning, 0), max(running, 0)
    n_ticks = max(elapsed, planning + running, 1)
    return {"schedule": planning / n_ticks, "forward": running / n_ticks}


class CompiledSegments:
    """Planner and executor of graph segments.

    Order of calls: begin; for every segment, or for several that compiled code makes through
    `maker`: watch, run and catch_up; then end.

    Args:
        program_of: Returns the program of all functions for a stage.
        kind_of: Returns whether a function has steps in a stage, and whether these address states.
        tally: Gets the counts after all segments.
    """

    def __init__(
        self,
        rules: RowRules,
        memory: Memory,
        addresses: AddressTable,
        team: Team,
        program_of: Callable[[str], StageProgram],
        kind_of: KindOf,
        tally: Tally,
    ) -> None:
        self.rules, self.kept = rules, KeptArrays(LiveArrays._fields)
        self._decoded = KeptArrays(DecodingArrays._fields)
        self._memory, self._found, self._team, self._tally = memory, addresses, team, tally
        self.decoder: Decoder | None = None
        self._n_grown, self._known, self._began = -1, (-1, -1), 0
        self._put_layout()
        self._log = self.kept["log"]
        memory.arrange(
            self._build_arrangement()
        )  # an empty mini-batch, because programs need arrays
        n_types = len(rules.spaces)
        kinds = np.array(
            [[kind_of(t, stage) if t in memory.plans else (False, False) for t in range(n_types)]
             for stage in FORWARD]
        ).reshape(len(FORWARD), n_types, 2)  # fmt: skip
        needed = [stage == "batch" or kinds[k, :, 0].any() for k, stage in enumerate(FORWARD)]
        self._programs = [
            program_of(stage) if is_needed else None
            for stage, is_needed in zip(FORWARD, needed, strict=True)
        ]
        self.kept.put(
            has_steps=np.ascontiguousarray(kinds[:, :, 0]),
            addresses_states=np.ascontiguousarray(kinds[:, :, 1]),
            parts=addresses.list_layout_arrays(rules.fields),
            pairs=np.zeros((0, 2), dtype=np.int32),
            calls=np.zeros((len(FORWARD), 4), dtype=np.int64),
            how=np.zeros(code.N_HOW, dtype=np.int64),
            spent=np.zeros(code.N_SPENT, dtype=np.int64),
        )

    def _put_layout(self) -> None:
        fields, spaces = self.rules.fields, self.rules.spaces
        of_spaces = 1 + int(spaces.max(initial=0))
        arrays = fields.arrays
        self.kept.put(
            **{name: np.zeros(0, dtype=np.int32) for name in ("log", "row", "order", "starts")},
            **{name: np.zeros((0, 2), dtype=np.int32) for name in ("ends", "batches")},
            **{name: np.zeros(of_spaces, dtype=np.int64) for name in ("used", "next_used")},
            spaces=spaces,
            follows=np.full(len(spaces), NO_TYPE, dtype=np.int32),
            gathers=arrays.gathers,
            slots=arrays.slots,
            values=np.zeros(0, dtype=np.int64),
            bounds=np.zeros((fields.n_fields + 1, 2), dtype=np.int64),
            counts=np.zeros((fields.n_functions, N_COUNTS), dtype=np.int64),
            progress=np.zeros(code.N_PROGRESS, dtype=np.int64),
            wanted=np.zeros(code.N_WANTED, dtype=np.int64),
        )

    def begin(self, decoder: Decoder, known_feeds: Feeds) -> None:
        """Reset the state for a new mini-batch.

        Args:
            known_feeds: Pairs of blocks of which the first is known to feed the second.
        """
        self.kept.put(known_feeds=known_feeds, log=self._log)
        self.kept["progress"].fill(0)
        self.kept["used"].fill(0)
        if decoder is not self.decoder:
            self.decoder, self._n_grown = decoder, -1
            names = [decoder.names.index(name) for name in self.rules.fields.names]
            arrays = self.rules.fields.arrays
            pulls = [(function, names[k]) for function, k in arrays.pulls.tolist()]
            self.kept.put(pulls=as_int_array(pulls).reshape(-1, 2))
        self._find_decoded(decoder)
        self._look()
        how = self.kept["how"]
        how[code.DECODES], how[code.PLANS] = decode_next.address, plan_next.address
        how[code.RUNS], how[code.CONTEXT] = self._team.find_entry_point()
        how[code.BASE_DEPTH], how[code.RESTARTS] = decoder.base, decoder.restart
        how[code.REORDERS], how[code.DECODED] = self.rules.reorder, self._decoded.address
        for tally in (*self._team.tallies, self.kept["spent"]):
            tally[:] = 0

    def _find_decoded(self, decoder: Decoder) -> None:
        """Update the addresses of the decoder's arrays if any of them may have moved."""
        if decoder.n_grown == self._n_grown:
            return
        self._n_grown = decoder.n_grown
        self._decoded.put(**decoder.arrays._asdict())

    def pack(self, log: list[int]) -> int:
        """Move the entries of a log into an array; return their number.

        Raises:
            TypeError: An entry is not a number of 32 bits.
        """
        n = len(log)
        if n > len(self._log):
            self.kept.make_room("log", n)
            self._log = self.kept["log"]
        try:
            struct.pack_into(f"{n}i", self._log.data, 0, *log)
        except struct.error as error:
            raise TypeError("expected an integer of at most 32 bits") from error
        log.clear()
        return n

    def take_log(self, log: IntArray) -> None:
        """Decode from this array, which other code writes, until the next mini-batch starts."""
        self.kept.put(log=log)

    @property
    def maker(self) -> tuple[int, int]:
        """Address of the function that runs a segment of a given log, and its first argument.

        The other argument is the number of entries of the log
        (dynbatch.harness.compiler.pointers.call_for_number). The function returns DONE, or a code
        for `run`.
        """
        return run_segment.address, self.kept.address

    def watch(self) -> None:
        """Start the clock before segments run; `catch_up` stops it."""
        self._began = read_ticks()

    def catch_up(self) -> dict[str, float]:
        """Return the fractions of the time since `watch` that planning and forward took.

        The rest was spent in programs and on decoding. The memory gets the last layout.
        """
        self._memory.set_rows_later(self._build_arrangement)
        planning, running = self.kept["spent"].tolist()
        self.kept["spent"].fill(0)
        return divide_ticks(planning, running, read_ticks() - self._began)

    def run(self, n: int, left: int, take_feeds: Callable[[Feeds], None]) -> None:
        """Run a segment of n entries of the log, with more memory if necessary.

        Args:
            left: The code that a previous attempt returned, or UNDONE.
            take_feeds: Gets the new feeds if blocks feed each other in a new way.

        Raises:
            ProgramError: A call in the log is invalid.
            ScheduleError: A vertex has no child in a slot that its function gathers.
        """
        if left == UNDONE:
            left = run_segment(self.kept.address, n)
        while left != DONE:
            if left == code.MORE_RECORDED:
                self._make_room_for_log()
            else:
                self._settle(left, take_feeds)
                n = 0
            left = run_segment(self.kept.address, n)

    def _make_room_for_log(self) -> None:
        decoder = self.decoder
        assert decoder is not None
        decoder.ensure_capacity(*self.kept["wanted"][:4].tolist())
        self._find_decoded(decoder)

    def _settle(self, left: int, take_feeds: Callable[[Feeds], None]) -> None:
        """Provide the resource that a decoded segment needs, or raise its error."""
        if left > FINE:
            check_fault(left)
        elif left == code.NEW_FEEDS:
            take_feeds(self.feeds)
        elif left == code.MORE_ROWS:
            self._make_room()
        elif left == code.MORE_MEMORY:
            self._memory.arrange(self._build_arrangement())
            self._look()
        elif left == code.LACKING_CHILD:
            raise ScheduleError("a vertex has fewer children than its function gathers")
        elif left == FAILED:
            plan_next(self.kept.address, int(self.rules.reorder))  # raises the error again
            raise MemoryError("out of memory while planning a graph segment")
        else:
            raise RuntimeError(f"unknown exit code {left} of a graph segment")

    def _make_room(self) -> None:
        n, n_starts, n_segments, n_values, n_batches = self.kept["wanted"].tolist()
        wanted = {"row": n, "order": n, "starts": n_starts, "ends": n_segments, "values": n_values}
        for name, room in (wanted | {"batches": n_batches}).items():
            self.kept.make_room(name, room)
        n_most = len(self.kept["batches"]) + len(self.rules.spaces)
        self.kept.make_room("pairs", len(FORWARD) * n_most)

    def end(self) -> None:
        """Add the counts of all segments to the tally."""
        tallies = self._team.tallies
        self._tally.n_launches += int(tallies[0][0])
        self._tally.bytes_copied += sum(int(tally[1]) for tally in tallies)

    def _look(self) -> None:
        """Update the addresses of arrays that move when memory grows."""
        memory, addresses = self._memory, self._found
        addresses.keep_up()
        if self._known == (memory.n_grown, addresses.address):
            return
        self._known = memory.n_grown, addresses.address
        space_of = self.rules.space_of_state
        rooms = [
            (space_of[state], room)
            for state, room in memory.list_state_rooms()
            if state in space_of
        ]
        self._team.take_places(addresses.address)
        programs = [
            (0, 0) if entry is None else (entry.function, entry.argument)
            for entry in self._programs
        ]
        flags = [(get_address(entry), len(entry)) for entry in memory.list_flags()]
        self.kept.put(
            room=memory.provide_capacities(self.rules.fields),
            state_rooms=np.array(rooms, dtype=np.int64).reshape(-1, 2),
            places=addresses.places,
            programs=np.array(programs, dtype=np.int64),
            flags=np.array(flags, dtype=np.int64).reshape(-1, 2),
        )

    def _build_arrangement(self) -> Arrangement:
        """Return the arrangement of the current segment."""
        count = self.rules.count_state_rows
        n_rows, n_kept = count(self.kept["next_used"]), count(self.used)
        return Arrangement(self.view_layout(), n_rows, kept_rows=n_kept)

    @property
    def feeds(self) -> Feeds:
        """Pairs of blocks of which the first feeds the second, as far as decoded."""
        assert self.decoder is not None
        return self.decoder.feeds

    @property
    def n_vertices(self) -> int:
        """Number of vertices of all planned segments."""
        return int(self.kept["progress"][code.BASE])

    @property
    def row(self) -> IntArray:
        """Row of each of these vertices, followed by free space."""
        return self.kept["row"]

    @property
    def used(self) -> Index:
        """Occupied rows of each space."""
        return self.kept["used"]

    def view_layout(self) -> Layout:
        """Return the layout of the current segment, as views that the next segment overwrites."""
        progress, kept = self.kept["progress"], self.kept
        batches = kept["batches"][: progress[code.N_BATCHES]]
        return Layout(
            self.rules.fields,
            kept["values"][: progress[code.N_VALUES]],
            kept["bounds"],
            kept["counts"],
            batches,
            self.row,
            kept["next_used"],
            (kept["counts"][:, N] > 0).tobytes(),
            np.concatenate([batches, batches[::-1]]),  # outputs have no batches here
        )

    def list_schedules(self) -> list[tuple[int, Schedule]]:
        """Return the first vertex and the schedule of every segment."""
        n_segments = int(self.kept["progress"][code.N_SEGMENTS])
        schedules, base, first = list[tuple[int, Schedule]](), 0, 0
        for end, last in self.kept["ends"][:n_segments].tolist():
            order = self.kept["order"][base:end].copy()
            starts = self.kept["starts"][first:last].copy()
            schedules.append((base, Schedule(order, starts)))
            base, first = end, last
        return schedules
