"""Rounds that are planned by compiled code, on this backend's memory, programs and team."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.compiler.compiled import address_of
from harness.engine.backend import Arrangement, Tally
from harness.engine.backends.compiled import next_round as calls
from harness.engine.backends.compiled import whole_round as whole
from harness.engine.backends.compiled.arguments import Found
from harness.engine.backends.compiled.memory import Memory
from harness.engine.backends.compiled.next_round import plan_next
from harness.engine.backends.compiled.program import StageProgram
from harness.engine.backends.compiled.whole_round import whole_round
from harness.engine.cpu_kernels.context import TICKS_READABLE, read_ticks
from harness.engine.cpu_kernels.team import Team
from harness.engine.kept_rounds import KeptRounds, RowRules
from harness.engine.lowering.plan import FORWARD
from harness.engine.rows import next_round as arrays
from harness.engine.rows.fields import Index
from harness.engine.rows.next_round import decode_next
from harness.programs.blocks import Feeds
from harness.programs.decoder import Decoder

Kind = Callable[[int, str], tuple[bool, bool]]  # of a function and a stage: see CompiledRounds


def divide_ticks(planning: int, running: int, elapsed: int) -> dict[str, float]:
    """Return the fractions of the elapsed ticks that two phases took, together at most 1.

    Any of the three may be 0 or less: a virtual machine that moves may set its counter back.
    """
    planning, running = max(planning, 0), max(running, 0)
    n_ticks = max(elapsed, planning + running, 1)
    return {"schedule": planning / n_ticks, "forward": running / n_ticks}


class CompiledRounds(KeptRounds):
    """program_of: that of all functions of a stage. kind_of: whether a function has steps in a
    stage, and whether these address states. tally: what is counted, when all rounds are over.
    """

    def __init__(
        self,
        rules: RowRules,
        memory: Memory,
        found: Found,
        team: Team,
        program_of: Callable[[str], StageProgram],
        kind_of: Kind,
        tally: Tally,
    ) -> None:
        super().__init__(rules, whole.N_OF_ROUNDS)
        self._memory, self._found, self._team, self._tally = memory, found, team, tally
        memory.arrange(self._arrangement())  # of nothing: programs want arrays
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
        self._n_calls, self._known, self._began = 0, (-1, -1), 0
        self.kept.put_all(
            {
                calls.HAS_STEPS: np.ascontiguousarray(kinds[:, :, 0]),
                calls.ADDRESSES_STATES: np.ascontiguousarray(kinds[:, :, 1]),
                calls.PARTS: found.parts(rules.fields),
                calls.PAIRS: np.zeros(0, dtype=np.int32),
                calls.CALLS: np.zeros((len(FORWARD), 4), dtype=np.int64),
                whole.HOW: np.zeros(whole.N_HOW, dtype=np.int64),
                whole.SPENT: np.zeros(whole.N_SPENT, dtype=np.int64),
            }
        )

    def begin(self, decoder: Decoder, known_feeds: Feeds) -> None:
        """See KeptRounds."""
        super().begin(decoder, known_feeds)
        self._look()
        for tally in self._team.tallies:
            tally[:] = 0

    def by_itself(self) -> tuple[int, int]:
        """See KeptRounds."""
        if not TICKS_READABLE:  # no phase could be told from another
            return 0, 0
        decoder, how = self.decoder, self.kept[whole.HOW]
        assert decoder is not None
        how[whole.DECODES] = decode_next.address
        how[whole.PLANS] = plan_next.address
        how[whole.RUNS], how[whole.CONTEXT] = self._team.callable_at()
        how[whole.BASE_DEPTH], how[whole.RESTARTS] = decoder.base, decoder.restart
        how[whole.REORDERS] = self.rules.reorder
        self.kept[whole.SPENT].fill(0)
        return whole_round.address, self.kept.address

    def watch(self) -> None:
        """See KeptRounds."""
        self._began = read_ticks() if TICKS_READABLE else 0

    def catch_up(self) -> dict[str, float]:
        """See KeptRounds."""
        spent = self.kept[whole.SPENT]
        if not spent.any():
            return {}
        self._memory.planned_later(self._arrangement)
        planning, running = spent.tolist()
        spent.fill(0)
        return divide_ticks(planning, running, read_ticks() - self._began)

    def plan(self) -> bool:
        """See KeptRounds; memory grows where it must."""
        while (n_calls := plan_next(self.kept.address, int(self.rules.reorder))) < 0:
            self.make_room(n_calls)
        self._n_calls = n_calls
        if n_calls:
            self._memory.arrange_later(self._arrangement)
        return bool(n_calls)

    def make_room(self, code: int) -> None:
        """See KeptRounds."""
        if code == arrays.MORE_MEMORY:
            self._memory.arrange(self._arrangement())
            self._look()
            return
        super().make_room(code)
        n_batches, n_types = len(self.kept[arrays.BATCHES]) // 2, len(self.rules.spaces)
        self.kept.make_room(calls.PAIRS, 2 * len(FORWARD) * (n_batches + n_types))

    def run(self) -> None:
        """See KeptRounds."""
        self._team.run_table(self.kept[calls.CALLS], self._n_calls)

    def end(self) -> None:
        """See KeptRounds."""
        tallies = self._team.tallies
        self._tally.n_launches += int(tallies[0][0])
        self._tally.bytes_copied += sum(int(tally[1]) for tally in tallies)

    def _arrangement(self) -> Arrangement:
        """Of the round that is planned now."""
        n_rows, n_kept = self._rows_of_states(self.kept[arrays.NEXT_USED]), self.used
        return Arrangement(self.layout(), n_rows, kept_rows=self._rows_of_states(n_kept))

    def _rows_of_states(self, used: Index) -> dict[str, int]:
        of_spaces = used.tolist()
        return {state: of_spaces[space] for state, space in self.rules.space_of_state.items()}

    def _look(self) -> None:
        """Find what moves when memory grows."""
        memory, found = self._memory, self._found
        found.keep_up()
        if self._known == (memory.n_grown, found.address):
            return
        self._known = memory.n_grown, found.address
        space_of = self.rules.space_of_state
        rooms = [(space_of[of], room) for of, room in memory.state_rooms() if of in space_of]
        self._team.take_places(found.address)
        places = [(0, 0) if one is None else (one.function, one.argument) for one in self._programs]
        flags = [(address_of(one), len(one)) for one in memory.flags()]
        self.kept.put_all(
            {
                calls.ROOM: memory.room_for(self.rules.fields),
                calls.STATE_ROOMS: np.array(rooms, dtype=np.int64).reshape(-1, 2),
                calls.PLACES: found.places,
                calls.LOOPS: np.array(places, dtype=np.int64),
                whole.FLAGS: np.array(flags, dtype=np.int64).reshape(-1, 2),
            }
        )
