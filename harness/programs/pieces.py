"""What was recorded since the last round, as arrays: for programs that run round by round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.errors import ProgramError
from harness.programs.counter import taken_apart
from harness.programs.recorder import Recorder
from harness.programs.recording import Recording
from harness.programs.taint import Feeds
from harness.values.arrays import IntArray, int_array


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """The vertices of one round, numbered from `base` on.

    types, phases, depths (n,). arg_start (n + 1,): from 0. args (m,): numbers of vertices, of
    earlier rounds too. pulls: external numbers (n,) by name, -1 where there is none.
    """

    base: int
    types: IntArray
    arg_start: IntArray
    args: IntArray
    phases: IntArray
    depths: IntArray
    pulls: dict[str, IntArray]

    @property
    def n(self) -> int:
        """How many."""
        return len(self.types)


class Restart(Exception):  # noqa: N818 - no fault: the programs are run once more
    """A round shows that a block which was taken for untainted is not."""


class Pieces:
    """Cuts a recorder's lists into rounds, and proves each before it is computed."""

    def __init__(self, recording: Recording, recorder: Recorder) -> None:
        self._recording, self._recorder = recording, recorder
        self.types = np.zeros(1024, dtype=np.int32)  # of all vertices so far, and room for more
        self.n = self._n_args = 0
        self._n_pulled = dict.fromkeys(recorder.pulled, 0)

    def cut(self) -> Piece | None:
        """The next round; None where nothing was recorded.

        Raises ProgramError for a call that does not fit, Restart where depths have to be others.
        """
        recorder, base, first_arg = self._recorder, self.n, self._n_args
        types = int_array(recorder.types[base:])
        if not len(types):
            return None
        starts = np.array(recorder.arg_ends[base:], dtype=np.int32)
        args = int_array(recorder.args[first_arg:])
        starts -= starts[0]
        self._keep(types)
        users = np.arange(base, self.n, dtype=np.int32).repeat(np.diff(starts))
        if (args >= users).any() or args.min(initial=0) < 0:
            raise ProgramError("a block is called with what no block computed")
        self._learn(self.types[args], self.types[users])
        pulls = {name: self._pulled(name, base) for name in recorder.pulled}
        self._recording.fitting.check(types, starts, self.types[args], pulls)
        _, phases, depths = taken_apart(recorder.counters[base:])
        self._n_args += len(args)
        return Piece(base, types, int_array(starts), args, phases, depths, pulls)

    def _keep(self, types: IntArray) -> None:
        wanted = self.n + len(types)
        if wanted > len(self.types):
            larger = np.zeros(2 * wanted, dtype=np.int32)
            larger[: self.n] = self.types[: self.n]
            self.types = larger
        self.types[self.n : wanted] = types
        self.n = wanted

    def _learn(self, of_args: IntArray, of_users: IntArray) -> None:
        n_types = len(self._recording.type_names)
        feeds: Feeds = np.zeros((n_types, n_types), dtype=np.bool_)
        feeds[of_args, of_users] = True
        if self._recording.widens(feeds):
            raise Restart

    def _pulled(self, name: str, base: int) -> IntArray:
        vertices, values = self._recorder.pulled[name]
        first, self._n_pulled[name] = self._n_pulled[name], len(vertices)
        found = np.full(self.n - base, -1, dtype=np.int32)
        if first < len(vertices):
            found[np.array(vertices[first:]) - base] = values[first:]
        return found

    def numbers_of(self, name: str, vertices: IntArray) -> IntArray:
        """External numbers of any vertices, -1 where there is none."""
        at, values = self._recorder.pulled[name]
        known: dict[int, Any] = dict(zip(at, values, strict=True))
        return int_array([known.get(vertex, -1) for vertex in vertices.tolist()])
