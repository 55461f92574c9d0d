"""The engine for mini-batches whose next round is not known before the last one is computed.

Every round is scheduled, laid out and run by itself; the rows of earlier ones stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harness.contracts.policy import Policy
from harness.engine.backend import Arrangement
from harness.engine.engine import NO_BATCHES, Engine, LaidOut
from harness.engine.rows.geometry import TypeGeometry, output_geometries, type_geometry
from harness.engine.rows.layout import Index, Layout, plan_layout
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
        graph = _cut(piece, type_names)
        schedule = policy(graph)
        before = self.used
        layout = self._behind(piece, graph, schedule)
        reading = graph.part(piece.types, piece.arg_start, piece.args, NOTHING)
        mini_batch = MiniBatch(reading, piece.pulls, NOTHING, 0)
        geometry = {
            t: type_geometry(self.reads[t], mini_batch, layout, rows)
            for t, rows in layout.types.items()
        }
        self._take_next(mini_batch, layout, geometry, {}, before)
        self.seen.append(Seen(graph, schedule, self.laid_out.arrangement))

    def _behind(self, piece: Piece, graph: Graph, schedule: Schedule) -> Layout:
        """Rows of a round, behind those of all earlier ones."""
        of_round = MiniBatch(graph, piece.pulls, NOTHING, 0)
        reorder = self.switches.layout == "read_order"
        own = plan_layout(of_round, schedule, self._spaces, reorder=reorder)
        self._make_room(self.n_vertices + piece.n)
        rows = own.row + self.used[self._spaces[piece.types]]
        self.row[self.n_vertices : self.n_vertices + piece.n] = rows
        self.n_vertices += piece.n
        first = {t: np.int32(self.used[self.space_of_type[t]]) for t in own.types}
        types = {t: replace(o, first_row=o.first_row + first[t]) for t, o in own.types.items()}
        self.used = self.used + np.array(own.n_rows)
        return Layout(own.batches, types, self.row, tuple(self.used.tolist()))

    def _take_next(
        self,
        mini_batch: MiniBatch,
        layout: Layout,
        geometry: Mapping[int, TypeGeometry],
        output_order: Mapping[int, Index],
        kept: Index,
    ) -> None:
        """Go on to what runs next; kept: how many rows of each space are filled already."""
        one = self._around(tuple(geometry), output_order).round_of(layout.batches)
        n_rows, n_kept = self._rows_of_states(self.used), self._rows_of_states(kept)
        arrangement = Arrangement(geometry, n_rows, [one], (), n_kept)
        self.take(LaidOut(mini_batch, layout, output_order, [one], NO_BATCHES, arrangement))

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
        layout = Layout(NO_BATCHES, {}, self.row, tuple(self.used.tolist()))
        found = output_geometries(self.output_reads, mini_batch, layout)
        geometry = {k: rows.geometry for k, rows in found.items()}
        order = {k: rows.order for k, rows in found.items()}
        self._take_next(mini_batch, layout, geometry, order, self.used)
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

    def _rows_of_states(self, used: Index) -> dict[str, int]:
        return {state: int(used[space]) for state, space in self.space_of_state.items()}

    def _make_room(self, n: int) -> None:
        if n > len(self.row):
            larger = np.zeros(2 * n, dtype=np.int32)
            larger[: self.n_vertices] = self.row[: self.n_vertices]
            self.row = larger


def _cut(piece: Piece, type_names: tuple[str, ...]) -> Graph:
    """The round as a graph of its own: what earlier ones computed is there already."""
    own = piece.args >= piece.base
    ends = np.zeros(len(own) + 1, dtype=np.int32)
    np.cumsum(own, out=ends[1:])
    return Graph(
        types=piece.types,
        arg_start=ends[piece.arg_start],
        args=piece.args[own] - np.int32(piece.base),
        type_names=type_names,
        phases=piece.phases,
        depths=piece.depths,
    )
