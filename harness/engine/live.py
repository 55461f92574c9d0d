"""The engine for mini-batches whose next round is not known before the last one is computed.

Every round is scheduled, laid out and run by itself; the rows of earlier ones stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from harness.contracts.policy import Policy
from harness.engine.backend import Arrangement, Run
from harness.engine.engine import Engine, runs_of
from harness.engine.rows.geometry import output_geometries, type_geometry
from harness.engine.rows.layout import Index, Layout, plan_layout
from harness.engine.rows.rounds import all_at_once
from harness.errors import UnsupportedTrial
from harness.programs.pieces import Piece
from harness.values.arrays import IntArray, int_array
from harness.values.graph import Graph, MiniBatch
from harness.values.schedule import Schedule

NOTHING = int_array([])
NO_BATCHES = np.zeros((0, 2), dtype=np.int32)


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
        self.seen: list[tuple[Graph, Schedule]] = []
        tally = self.backend.tally
        tally.n_launches = tally.bytes_copied = 0

    def arrange_round(self, piece: Piece, type_names: tuple[str, ...], policy: Policy) -> list[Run]:
        """Schedule and lay out one round; returns what it runs."""
        graph = _cut(piece, type_names)
        schedule = policy(graph)
        self.seen.append((graph, schedule))
        of_round = MiniBatch(graph, piece.pulls, NOTHING, 0)
        reorder = self.switches.layout == "read_order"
        own = plan_layout(of_round, schedule, self.space_of_type, reorder=reorder)
        spaces = np.asarray(self.space_of_type, dtype=np.int64)
        self._grow(self.n_vertices + piece.n)
        rows = own.row + self.used[spaces[piece.types]]
        self.row[self.n_vertices : self.n_vertices + piece.n] = rows
        self.n_vertices += piece.n
        first = {t: np.int32(self.used[self.space_of_type[t]]) for t in own.types}
        types = {t: replace(o, first_row=o.first_row + first[t]) for t, o in own.types.items()}
        before, self.used = self.used, self.used + np.array(own.n_rows)
        layout = Layout(own.batches, types, self.row, tuple(self.used.tolist()))
        reading = graph.part(piece.types, piece.arg_start, piece.args, NOTHING)
        mini_batch = MiniBatch(reading, piece.pulls, NOTHING, 0)
        geometry = {
            t: type_geometry(self.plans[t], mini_batch, layout, o) for t, o in types.items()
        }
        runs = runs_of(all_at_once(self.plans, layout, {}))
        n_rows, kept = self._rows_of_states(self.used), self._rows_of_states(before)
        self.backend.arrange(Arrangement(geometry, n_rows, runs, (), kept))
        return runs

    def run_round(self, runs: Sequence[Run]) -> None:
        """Compute it."""
        self.backend.run_together(runs)

    def finish(self, outputs: IntArray, pulls: dict[str, IntArray]) -> None:
        """Run the output function on all outputs, behind the last round.

        pulls: what it pulls, one number per output.
        """
        empty = Graph(NOTHING, int_array([0]), NOTHING, ("none",))
        self.mini_batch = MiniBatch(empty, {}, outputs, 0, output_pulls=pulls)
        layout = Layout(NO_BATCHES, {}, self.row, tuple(self.used.tolist()))
        plans = {k: self.plans[k] for k in self.output_ids}
        found = output_geometries(plans, self.mini_batch, layout)
        self.output_order = {k: rows.order for k, rows in found.items()}
        one = all_at_once(self.plans, layout, found)
        n_rows = self._rows_of_states(self.used)
        geometry = {k: rows.geometry for k, rows in found.items()}
        self.backend.arrange(Arrangement(geometry, n_rows, runs_of(one), (), n_rows))
        self.backend.run_together(runs_of(one))
        self._loss = self.backend.total(one.losses)
        self.has_rounds = True

    def numbers(self, state: str, vertices: Sequence[int], columns: Sequence[int]) -> list[float]:
        """One number of a state of each vertex."""
        rows = self.row[list(vertices)].astype(np.int64)
        found: NDArray[np.float32] = self.backend.read_states(state, rows)
        numbers: list[float] = found[np.arange(len(rows)), list(columns)].tolist()
        return numbers

    def _rows_of_states(self, used: Index) -> dict[str, int]:
        return {state: int(used[space]) for state, space in self.space_of_state.items()}

    def _grow(self, n: int) -> None:
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
