"""Engine for mini-batches whose next graph segment depends on the values of the last one.

Every segment is scheduled, laid out and run separately, and the rows of earlier segments do not
move. With the policy inline_depth, compiled code does all of that if the backend can
(LiveSegments). Objects that describe the run are then created on request only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.policy import Policy
from dynbatch.harness.engine.backend import Arrangement, LiveSegments
from dynbatch.harness.engine.engine import Engine
from dynbatch.harness.engine.rows.fields import Index
from dynbatch.harness.engine.rows.layout import Before, RowRules, plan_layout
from dynbatch.harness.errors import ScheduleError, UnsupportedTrial
from dynbatch.harness.programs.blocks import Feeds
from dynbatch.harness.programs.decoder import Decoder, RecordedPiece
from dynbatch.harness.values.arrays import IntArray, as_int_array
from dynbatch.harness.values.graph import Graph, MiniBatch
from dynbatch.harness.values.schedule import Schedule, check_schedule

NOTHING = as_int_array([])
NO_GRAPH = Graph(NOTHING, as_int_array([0]), NOTHING, ("none",))
NO_SCHEDULE = Schedule(NOTHING, as_int_array([0]))


@dataclass(frozen=True, eq=False, slots=True)
class Seen:
    """A segment that has run: its own vertices, their schedule, and their arrangement."""

    graph: Graph
    schedule: Schedule
    arrangement: Arrangement


class LiveEngine(Engine):
    """Engine with three orders of calls; the first two are for inference only.

    * begin; arrange_segment and run_segment for every segment; finish.
    * begin_kept, whose result runs all segments; finish.
    * As in any engine: arrange; forward.
    """

    _of_types: Graph | None = None  # a graph with the types of the programs, but no vertices
    _kept_for: RowRules | None = None  # the rules for which `_segments` was created
    _segments: LiveSegments | None = None
    _current: LiveSegments | None = None
    _is_live = False  # the last mini-batch started with `begin`

    def begin(self) -> None:
        """Reset the state for a new mini-batch.

        Raises:
            UnsupportedTrial: The backend does not keep states.
        """
        if not self.backend.keeps_states:
            raise UnsupportedTrial(
                "execution=interleaved needs a backend that stores states; use backend=compiled"
            )
        self._lower_functions()  # as written: the number of parents is not known yet
        self.row = np.zeros(1024, dtype=np.int32)
        self.n_vertices = 0
        self.used: Index = np.zeros(1 + self.rules.spaces.max(initial=0), dtype=np.int64)
        self._seen: list[Seen] = []
        self._current = None
        self.has_segments = self._is_live = True
        tally = self.backend.tally
        tally.n_launches = tally.bytes_copied = 0

    def arrange(self, mini_batch: MiniBatch, schedule: Schedule) -> None:
        """Lay out a mini-batch that is known as a whole, as any engine does."""
        self._is_live = False
        super().arrange(mini_batch, schedule)

    def begin_kept(
        self, decoder: Decoder, known_feeds: Feeds, type_names: tuple[str, ...]
    ) -> LiveSegments:
        """Start a mini-batch whose segments compiled code plans; requires can_keep."""
        self.begin()
        assert self._segments is not None
        self._prepare_types(type_names)
        self._current = self._segments
        self._current.begin(decoder, known_feeds)
        return self._current

    def can_keep(self) -> bool:
        """Return whether compiled code can plan segments here, as the policy inline_depth does."""
        self._lower_functions()
        if self._kept_for is not self.rules:
            self._segments, self._kept_for = self.backend.make_live_segments(self.rules), self.rules
        return self._segments is not None

    def _prepare_types(self, type_names: tuple[str, ...]) -> Graph:
        if self._of_types is None or self._of_types.type_names is not type_names:
            self._of_types = Graph(NOTHING, as_int_array([0]), NOTHING, type_names)
        return self._of_types

    def arrange_segment(
        self, piece: RecordedPiece, type_names: tuple[str, ...], policy: Policy
    ) -> None:
        """Schedule and lay out one graph segment."""
        graph = _cut(piece, self._prepare_types(type_names))
        schedule = policy(graph)
        reading = graph.build_part(piece.types, piece.arg_start, piece.args)
        self._make_room(self.n_vertices + piece.n)
        self._take_next(MiniBatch(reading, piece.pulls, NOTHING, 0), schedule)
        self.n_vertices += piece.n
        self._seen.append(Seen(graph, schedule, self.arrangement))

    def _take_next(self, mini_batch: MiniBatch, schedule: Schedule) -> None:
        """Lay out the next segment, with rows after all earlier ones, and continue with it."""
        before = Before(self.n_vertices, self.row, self.used)
        arrangement = self._arrange_after(before, mini_batch, schedule)
        self.used = arrangement.types.n_rows
        self.take(mini_batch, arrangement)

    def _arrange_after(
        self, before: Before, mini_batch: MiniBatch, schedule: Schedule
    ) -> Arrangement:
        layout = plan_layout(mini_batch, schedule, self.rules, before)
        segment = self._plan_around(layout).make_segment(layout.forth)
        n_rows, n_kept = map(self.rules.count_state_rows, (layout.n_rows, before.used))
        return Arrangement(layout, n_rows, [segment], (), n_kept)

    def run_segment(self) -> None:
        """Compute the segment that was arranged last."""
        tally, begin = self.backend.tally, self.backend.read_ticks()
        self.backend.run_together(self.arrangement.forward)
        tally.n_cycles += self.backend.read_ticks() - begin

    def finish(self, outputs: IntArray, pulls: dict[str, IntArray]) -> None:
        """Run the output function on all outputs, after the last segment.

        Args:
            pulls: The numbers that the output function pulls, one per output.
        """
        if self._current is not None:
            self._current.end()
            self.row, self.n_vertices = self._current.row, self._current.n_vertices
            self.used = self._current.used.copy()
        self._take_next(MiniBatch(NO_GRAPH, {}, outputs, 0, output_pulls=pulls), NO_SCHEDULE)
        self.run_segment()
        self.loss = self.backend.defer_losses(self.arrangement.segments[0].losses)

    def read_numbers(
        self, state: str, vertices: Sequence[int], columns: Sequence[int]
    ) -> list[float]:
        """Return one number of a state for each vertex."""
        known = self if self._current is None else self._current
        rows = known.row[: known.n_vertices][list(vertices)].astype(np.int64)
        values: NDArray[np.float32] = self.backend.read_states(state, rows)
        numbers: list[float] = values[np.arange(len(rows)), list(columns)].tolist()
        return numbers

    def facts(self) -> dict[str, str]:
        """Return the engine's facts; for live mini-batches also the planner of the segments."""
        if not self._is_live:
            return super().facts()
        by = "Python" if self._current is None else "compiled code"
        shares = {} if self.shared.blocks else {"share_products": "false"}
        return super().facts() | shares | {"segment_planner": by}

    @property
    def seen(self) -> list[Seen]:
        """All segments of the last mini-batch.

        Raises:
            ScheduleError: Compiled code made an invalid schedule, or assigned rows that differ from
                those that its schedule implies.
        """
        if self._current is not None and not self._seen:
            self._seen = self._rebuild_seen(self._current)
        return self._seen

    def _rebuild_seen(self, segments: LiveSegments) -> list[Seen]:
        """Return the segments that compiled code planned, with their schedules, laid out again."""
        assert self._of_types is not None
        assert segments.decoder is not None
        used, row = np.zeros_like(segments.used), np.zeros_like(segments.row)
        seen = []
        for base, schedule in segments.list_schedules():
            piece = segments.decoder.extract_piece(base, base + len(schedule.order))
            graph = _cut(piece, self._of_types)
            check_schedule(graph, schedule)  # an invalid schedule cannot be laid out
            reading = self._of_types.build_part(piece.types, piece.arg_start, piece.args)
            mini_batch = MiniBatch(reading, piece.pulls, NOTHING, 0)
            arrangement = self._arrange_after(Before(base, row, used), mini_batch, schedule)
            used = arrangement.types.n_rows
            seen.append(Seen(graph, schedule, arrangement))
        n = segments.n_vertices
        if not np.array_equal(row[:n], segments.row[:n]):
            raise ScheduleError("rows of a graph segment differ from its schedule")
        return seen

    def list_arrangements(self) -> list[Arrangement]:
        """Return the arrangements of all segments of the last mini-batch, and of its outputs."""
        return [*(segment.arrangement for segment in self.seen), self.arrangement]

    def _make_room(self, n: int) -> None:
        if n > len(self.row):
            larger = np.zeros(2 * n, dtype=np.int32)
            larger[: self.n_vertices] = self.row[: self.n_vertices]
            self.row = larger


def _cut(piece: RecordedPiece, of_types: Graph) -> Graph:
    """Return the segment as a graph without the edges to earlier segments, whose values exist.

    The piece was validated when it was cut; its schedule is validated when a mini-batch is checked.
    """
    own = piece.args >= piece.base
    ends = np.zeros(len(own) + 1, dtype=np.int32)
    np.cumsum(own, out=ends[1:])
    arg_start, args = ends[piece.arg_start], piece.args[own] - np.int32(piece.base)
    return of_types.build_part(
        piece.types,
        as_int_array(arg_start),
        as_int_array(args),
        piece.phases,
        piece.depths,
    )
