"""Rounds of a mini-batch that compiled code decodes, schedules, lays out and runs.

What the policy inline_depth does, and the layout, are the same compiled functions as everywhere
(harness.engine.rows.next_round); here is the memory that they work in, which is kept.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.engine.kept_arrays import KeptArrays
from harness.engine.rows import next_round as arrays
from harness.engine.rows.counting import N_COUNTS, N
from harness.engine.rows.fields import N_OF_FUNCTION, N_OF_GATHER, Fields, Index
from harness.engine.rows.layout import Layout
from harness.engine.rows.next_round import (
    MORE_RECORDED,
    MORE_ROWS,
    NEW_FEEDS,
    UNPLANNED,
    decode_next,
)
from harness.errors import ScheduleError
from harness.programs.blocks import Feeds
from harness.programs.decode import FINE, check_fault
from harness.programs.decoder import Decoder
from harness.values.arrays import IntArray, int_array
from harness.values.graph import NO_TYPE
from harness.values.schedule import Schedule


@dataclass(frozen=True, eq=False, slots=True)
class RowRules:
    """What says where rows go: see harness.engine.rows.layout.plan_layout.

    space_of_state: of every state that is written.
    """

    fields: Fields
    spaces: IntArray
    space_of_state: Mapping[str, int]
    reorder: bool


class KeptRounds(ABC):
    """begin, then for every round decode, plan and run, then end. Or: begin, by_itself and take_log
    for what makes its rounds in compiled code; watch before it, catch_up and take_over behind.

    n_arrays: of the table, those of harness.engine.rows.next_round and those of a backend.
    """

    def __init__(self, rules: RowRules, n_arrays: int) -> None:
        self.rules, self.kept = rules, KeptArrays(n_arrays)
        fields, spaces = rules.fields, rules.spaces
        n_numbers = N_OF_FUNCTION * fields.n_functions + N_OF_GATHER * len(fields.gathers)
        of_spaces, empty = 1 + int(spaces.max(initial=0)), np.zeros(0, dtype=np.int32)
        many = dict.fromkeys(
            (arrays.LOG, arrays.ROW, arrays.ORDER, arrays.STARTS, arrays.ENDS, arrays.BATCHES),
            empty,
        )
        self.kept.put_all(
            many
            | {
                arrays.USED: np.zeros(of_spaces, dtype=np.int64),
                arrays.NEXT_USED: np.zeros(of_spaces, dtype=np.int64),
                arrays.SPACES: spaces,
                arrays.FOLLOWS: np.full(len(spaces), NO_TYPE, dtype=np.int32),
                arrays.GATHERS: fields.gathers,
                arrays.SLOTS: fields.slots,
                arrays.VALUES: np.zeros(0, dtype=np.int64),
                arrays.BOUNDS: np.zeros((n_numbers + len(fields.pulls) + 1, 2), dtype=np.int64),
                arrays.COUNTS: np.zeros((fields.n_functions, N_COUNTS), dtype=np.int64),
                arrays.PROGRESS: np.zeros(arrays.N_PROGRESS, dtype=np.int64),
                arrays.WANTED: np.zeros(arrays.N_WANTED, dtype=np.int64),
            }
        )
        self.decoder: Decoder | None = None
        self._n_grown = -1
        self._log = self.kept[arrays.LOG]

    def begin(self, decoder: Decoder, known_feeds: Feeds) -> None:
        """Forget the last mini-batch. known_feeds: which blocks are known to feed which."""
        self.kept.put(arrays.STATICS, decoder.statics)
        self.kept.put(arrays.KNOWN, known_feeds)
        self.kept[arrays.PROGRESS].fill(0)
        self.kept[arrays.USED].fill(0)
        self.kept.put(arrays.LOG, self._log)
        if decoder is not self.decoder:
            self.decoder, self._n_grown = decoder, -1
            names = [decoder.names.index(name) for name in self.rules.fields.names]
            pulls = [(function, names[k]) for function, k in self.rules.fields.pulls.tolist()]
            self.kept.put(arrays.PULLS, int_array(pulls))
        self._find_decoded(decoder)

    def _find_decoded(self, decoder: Decoder) -> None:
        """Look where the decoder's arrays are, if any of them may have moved."""
        if decoder.n_grown == self._n_grown:
            return
        self._n_grown = decoder.n_grown
        fitting = decoder.fitting
        kinds = (arrays.KIND_TYPES, arrays.KIND_ARGS, arrays.FIRST_NAME, arrays.NAMES)
        self.kept.put_all(
            dict(zip(kinds, decoder.kinds, strict=True))
            | {
                arrays.N_SLOTS: fitting.n_slots,
                arrays.FITS: fitting.fits,
                arrays.NEEDS: fitting.needs,
                arrays.STATE: decoder.state,
                arrays.FIBERS: decoder.fibers,
                arrays.NESTED: decoder.nested,
                arrays.TYPES: decoder.types,
                arrays.COUNTERS: decoder.counters,
                arrays.DEPTHS: decoder.depths,
                arrays.ARG_START: decoder.arg_start,
                arrays.ARGS: decoder.args,
                arrays.PULLED: decoder.pulls,
                arrays.FEEDS: decoder.feeds,
            }
        )

    def decode(self, log: list[int]) -> bool:
        """Take what is in a log; returns whether blocks feed each other in a way not yet known.

        Raises ProgramError for a call that does not fit, TypeError for what is no number.
        """
        n = len(log)
        self._make_room_for(n)
        try:
            struct.pack_into(f"{n}i", self._log.data, 0, *log)
        except struct.error as error:
            raise TypeError("a number of 32 bits is needed") from error
        log.clear()
        return self._decode(n)

    def take_log(self, log: IntArray) -> None:
        """Decode from where somebody else writes a log, until the next mini-batch begins."""
        self.kept.put(arrays.LOG, log)

    @abstractmethod
    def by_itself(self) -> tuple[int, int]:
        """Return the address of what makes a round of a log that was taken, and its first argument.

        The other is how many entries the log has (harness.compiler.pointers.call_for_number). It
        returns DONE, or what is for `take_over`.

        Zeros where Python has to make every round.
        """

    @abstractmethod
    def watch(self) -> None:
        """From now on compiled code may make rounds; `catch_up` comes next."""

    @abstractmethod
    def catch_up(self) -> dict[str, float]:
        """Behind rounds that were made so: which shares of the time since `watch` were spent on
        which phase, what is left on the programs and on decoding. Nothing where there were none.
        """

    def take_over(self, n: int, code: int) -> bool:
        """As `decode`, the n entries of a log that was taken, of which a code says what was done.

        Raises ProgramError as `decode` does.
        """
        if code > FINE:
            check_fault(code)
        if code == MORE_RECORDED:
            return self._decode(n)
        if code not in (NEW_FEEDS, UNPLANNED):
            raise RuntimeError(f"a round ended with {code}, which is no code of one")
        return code == NEW_FEEDS

    def _make_room_for(self, n: int) -> None:
        if n > len(self._log):
            self.kept.make_room(arrays.LOG, n)
            self._log = self.kept[arrays.LOG]

    def _decode(self, n: int) -> bool:
        decoder = self.decoder
        assert decoder is not None
        while True:
            self._find_decoded(decoder)
            code = decode_next(self.kept.address, n, decoder.base, int(decoder.restart))
            if code != MORE_RECORDED:
                break
            decoder.make_room(*self.kept[arrays.WANTED][:4].tolist())
        if code > 0:
            check_fault(code)
        return bool(code == NEW_FEEDS)

    @abstractmethod
    def plan(self) -> bool:
        """Schedule what was decoded since the last round, lay it out, and write its calls down.

        Returns whether there is anything.
        """

    @abstractmethod
    def run(self) -> None:
        """Compute what was planned last."""

    @abstractmethod
    def end(self) -> None:
        """Behind the last round: count what was done."""

    def make_room(self, code: int) -> None:
        """Let what a code says was lacking be there, and more."""
        if code != MORE_ROWS:
            raise ScheduleError("a vertex lacks a child that its function gathers")
        n, n_starts, n_rounds, n_values, n_batches = self.kept[arrays.WANTED].tolist()
        wanted = {arrays.ROW: n, arrays.ORDER: n, arrays.STARTS: n_starts}
        wanted |= {arrays.ENDS: 2 * n_rounds, arrays.VALUES: n_values}
        for number, room in (wanted | {arrays.BATCHES: 2 * n_batches}).items():
            self.kept.make_room(number, room)

    @property
    def feeds(self) -> Feeds:
        """Which blocks feed which, as far as it was decoded."""
        assert self.decoder is not None
        return self.decoder.feeds

    @property
    def n_vertices(self) -> int:
        """Vertices of all rounds that were planned."""
        return int(self.kept[arrays.PROGRESS][arrays.BASE])

    @property
    def row(self) -> IntArray:
        """Of each of them its row, with room for more."""
        return self.kept[arrays.ROW]

    @property
    def used(self) -> Index:
        """Rows of each space that these take."""
        return self.kept[arrays.USED]

    def layout(self) -> Layout:
        """Of the round that is planned now, as views of what is written over by the next one."""
        progress, kept = self.kept[arrays.PROGRESS], self.kept
        counts = kept[arrays.COUNTS]
        batches = kept[arrays.BATCHES][: 2 * progress[arrays.N_BATCHES]].reshape(-1, 2)
        return Layout(
            self.rules.fields,
            kept[arrays.VALUES][: progress[arrays.N_VALUES]],
            kept[arrays.BOUNDS],
            counts,
            batches,
            self.row,
            kept[arrays.NEXT_USED],
            (counts[:, N] > 0).tobytes(),
            np.concatenate([batches, batches[::-1]]),  # functions of outputs have none here
        )

    def schedules(self) -> list[tuple[int, Schedule]]:
        """Of every round the number of its first vertex, and how it was scheduled."""
        n_rounds = int(self.kept[arrays.PROGRESS][arrays.N_ROUNDS])
        found, base, first = list[tuple[int, Schedule]](), 0, 0
        for end, last in self.kept[arrays.ENDS][: 2 * n_rounds].reshape(-1, 2).tolist():
            order = self.kept[arrays.ORDER][base:end].copy()
            starts = self.kept[arrays.STARTS][first:last].copy()
            found.append((base, Schedule(order, starts)))
            base, first = end, last
        return found
