"""The engine for mini-batches whose next round is not known before the last one is computed.

Every round is scheduled, laid out and run by itself; the rows of earlier ones stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.contracts.policy import Policy
from harness.engine.backend import Arrangement
from harness.engine.engine import NO_BATCHES, Engine, LaidOut
from harness.engine.rows.geometry import Index
from harness.engine.rows.layout import Before, plan_layout
from harness.errors import UnsupportedTrial
from harness.programs.pieces import Piece
from harness.values.arrays import IntArray, int_array
from harness.values.graph import Graph, MiniBatch
from harness.values.schedule import Schedule

NOTHING = int_array([])


@dataclass(frozen=True, eq=False, slots=True)
class Seen:
    """A round that was run: its own vertices, how they were scheduled, and what that ran."""

    graph: Graph
    schedule: Schedule
    arrangement: Arrangement


class LiveEngine(Engine):
    """begin, then arrange_round and run_round for every piece, then finish. Inference only."""

    _of_types: Graph | None = None  # without vertices, of the types of the programs

    def begin(self) -> None:
        """Forget the last mini-batch.

        Raises UnsupportedTrial where the backend keeps no states.
        """
        if not self.backend.keeps_states:
            raise UnsupportedTrial("rounds=live needs a backend that keeps states: compiled")
        self.row = np.zeros(1024, dtype=np.int32)
        self.n_vertices = 0
        self.used: Index = np.zeros(1 + max(self.space_of_type, default=0), dtype=np.int64)
        self.seen: list[Seen] = []
        self.has_rounds = True
        tally = self.backend.tally
        tally.n_launches = tally.bytes_copied = 0

    def arrange_round(self, piece: Piece, type_names: tuple[str, ...], policy: Policy) -> None:
        """Schedule and lay out one round."""
        if self._of_types is None or self._of_types.type_names is not type_names:
            self._of_types = Graph(NOTHING, int_array([0]), NOTHING, type_names)
        graph = _cut(piece, self._of_types)
        schedule = policy(graph)
        reading = graph.part(piece.types, piece.arg_start, piece.args)
        self._make_room(self.n_vertices + piece.n)
        self._take_next(MiniBatch(reading, piece.pulls, NOTHING, 0), schedule)
        self.n_vertices += piece.n
        self.seen.append(Seen(graph, schedule, self.laid_out.arrangement))

    def _take_next(self, mini_batch: MiniBatch, schedule: Schedule) -> None:
        """Lay out what runs next, its rows behind those of all earlier rounds, and go on to it."""
        reorder = self.switches.layout == "read_order"
        before = Before(self.n_vertices, self.row, self.used)
        layout = plan_layout(
            mini_batch, schedule, self.fields, self._spaces, reorder=reorder, before=before
        )
        one = self._around(layout).round_of(layout.forth)
        n_rows, n_kept = self.rows_of_states(layout.n_rows), self.rows_of_states(self.used)
        self.used = layout.n_rows
        arrangement = Arrangement(layout, n_rows, [one], (), n_kept)
        self.take(LaidOut(mini_batch, layout, [one], NO_BATCHES, arrangement))

    def run_round(self) -> None:
        """Compute what was arranged last."""
        tally, begin = self.backend.tally, self.backend.ticks()
        self._run_together(self.laid_out.arrangement.forward)
        tally.n_cycles += self.backend.ticks() - begin

    def finish(self, outputs: IntArray, pulls: dict[str, IntArray]) -> None:
        """Run the output function on all outputs, behind the last round.

        pulls: what it pulls, one number per output.
        """
        empty = Graph(NOTHING, int_array([0]), NOTHING, ("none",))
        mini_batch = MiniBatch(empty, {}, outputs, 0, output_pulls=pulls)
        self._take_next(mini_batch, Schedule(NOTHING, int_array([0])))
        self.run_round()
        self._losses = [self.backend.later(one.losses) for one in self.laid_out.rounds]

    def numbers(self, state: str, vertices: Sequence[int], columns: Sequence[int]) -> list[float]:
        """One number of a state of each vertex."""
        rows = self.row[list(vertices)].astype(np.int64)
        found: NDArray[np.float32] = self.backend.read_states(state, rows)
        numbers: list[float] = found[np.arange(len(rows)), list(columns)].tolist()
        return numbers

    def arrangements(self) -> list[Arrangement]:
        """All that the last mini-batch ran: of every round, and of its outputs."""
        return [*(one.arrangement for one in self.seen), self.laid_out.arrangement]

    def _make_room(self, n: int) -> None:
        if n > len(self.row):
            larger = np.zeros(2 * n, dtype=np.int32)
            larger[: self.n_vertices] = self.row[: self.n_vertices]
            self.row = larger


def _cut(piece: Piece, of_types: Graph) -> Graph:
    """The round as a graph of its own: what earlier ones computed is there already.

    of_types: a graph of the same types. A piece has been proved right when it was cut, and its
    schedule is when a mini-batch is checked.
    """
    own = piece.args >= piece.base
    ends = np.zeros(len(own) + 1, dtype=np.int32)
    np.cumsum(own, out=ends[1:])
    arg_start, args = ends[piece.arg_start], piece.args[own] - np.int32(piece.base)
    return of_types.part(
        piece.types,
        int_array(arg_start),
        int_array(args),
        piece.phases,
        piece.depths,
    )
