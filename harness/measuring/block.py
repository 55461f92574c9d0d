"""Blocks: systems of one point, alive side by side, that run their timed passes in turns.

Every system is a process of its own: loaded, checked, compiled and warm before it waits for its
first turn. A block is the unit within which ratios are computed; its repetitions (rounds) start
fresh processes. As many systems are alive at once as memory allows. A larger block is measured in
parts, and the fastest system of the first part takes turns in all of them.
"""

from __future__ import annotations

import math
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dynbatch.harness.errors import BenchError
from dynbatch.harness.machine.facts import list_usable_cpus, read_memory_bytes
from dynbatch.harness.machine.files import drop_leftovers
from dynbatch.harness.machine.folders import make_temporary_folder
from dynbatch.harness.measuring.cycles import (
    Progress,
    find_fastest,
    is_marked,
    list_unsettled,
    shuffle,
)
from dynbatch.harness.measuring.processes.fork_server import ForkServers
from dynbatch.harness.measuring.processes.launch import (
    Launched,
    build_server_key,
    drop_log,
    explain_unstartable,
    launch_worker,
    record_unmeasured,
    settle_round,
)
from dynbatch.harness.measuring.processes.process_tree import contain_descendants, end_strays
from dynbatch.harness.measuring.processes.supervise import MEMORY_SHARE, Watch
from dynbatch.harness.measuring.turns import (
    CHECKED,
    END,
    LAST,
    MARKED,
    READY,
    WHOLE,
    Command,
    MessageBuffer,
    encode,
    parse_report,
)
from dynbatch.harness.records.files import convert_write_errors
from dynbatch.harness.records.record import Record
from dynbatch.harness.records.turns import collect_turn_seconds
from dynbatch.harness.trials.spec import TrialSpec

USUAL_BYTES = 2**30  # expected memory of a process before any of the block is known
CLOSED_S = 10.0  # time to end after a worker's socket is closed
_CHUNK_BYTES = 65536

Outcome = Record | BenchError
Settled = Callable[[int, Outcome], None]


@dataclass(frozen=True, slots=True)
class BlockEntry:
    """Round of a trial to be measured in a block.

    Attributes:
        log: File for the worker's output; deleted unless the trial crashed.
        records_invalid_data: Whether invalid data yields a record instead of an error.
    """

    spec: TrialSpec
    path: Path
    log: Path
    records_invalid_data: bool = False


def measure_block(
    entries: Sequence[BlockEntry],
    servers: ForkServers,
    settled: Settled = lambda *_: None,
) -> list[Outcome]:
    """Measure one repetition of a block; return each entry's record, or the error that refused it.

    No exception, including an interruption, leaves a process, a log or a partial file.

    Args:
        settled: Receives the number of an entry and its outcome as soon as it is known.

    Raises:
        OutputError: A record or a log cannot be written.
    """
    keys = [build_server_key(entry.spec) for entry in entries]
    servers.start(key for key in keys if key is not None)  # before the block's own descendants
    with ExitStack() as stack:
        folder = stack.enter_context(make_temporary_folder())
        watch = Watch(stack.enter_context(contain_descendants()))
        block = _Block(entries, servers, folder, watch, settled)
        stack.callback(block.end)
        block.run()
    return [block.outcomes[number] for number in range(len(entries))]


class _Seat:
    """Running worker of a block.

    Attributes:
        is_prepared: Whether it has become ready for its first turn.
        is_checked: Whether its last checks are completed.
    """

    def __init__(self, entry: BlockEntry, worker: Launched) -> None:
        self.entry, self.worker = entry, worker
        self.progress = Progress(entry.spec.timing)
        self.is_prepared = self.is_checked = False
        self._lines = MessageBuffer()
        self._given = Command(WHOLE)
        self._closed_at: float | None = None

    def give(self, command: Command) -> None:
        self._given = command
        self.worker.child.is_active = True
        channel = self.worker.child.channel
        if channel is not None:
            with suppress(OSError):  # it has ended, which the next wait notices
                channel.sendall(encode(asdict(command)))

    def take_messages(self) -> None:
        child = self.worker.child
        if child.channel is None:
            return
        try:
            data = child.channel.recv(_CHUNK_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            child.close_channel()
            self._closed_at = time.monotonic()
            return
        try:
            self._lines.add(data)
            while (message := self._lines.take()) is not None:
                self._take(message)
        except ValueError as error:
            child.exceed("crash", f"wrote to the harness's socket: {error}")

    def _take(self, message: dict[str, Any]) -> None:
        if not self.worker.child.is_active or self.is_checked:
            raise ValueError("a message out of turn")
        if not self.is_prepared:
            if message != READY:
                raise ValueError("a report before the first turn")
            self.is_prepared = True
        elif self._given.kind == LAST:
            if message != CHECKED:
                raise ValueError("a report after the last turn")
            self.is_checked = True
        else:
            self.progress.add(self._given.cycle, parse_report(message))
        self.worker.child.is_active = False

    def check_channel(self) -> None:
        """End a worker that has closed its socket and does not end by itself."""
        is_late = self._closed_at is not None and time.monotonic() - self._closed_at > CLOSED_S
        if is_late and not self.worker.child.has_ended:
            self.worker.child.exceed("crash", "closed the harness's socket and went on")

    def find_false_report(self, record: Record) -> str | None:
        """Return how a record differs from the reports of its turns, or None."""
        reported = {cycle: done.seconds for cycle, done in self.progress.whole.items()}
        recorded = collect_turn_seconds(record.passes_s, record.turns)
        alike = reported.keys() == recorded.keys() and all(
            math.isclose(seconds, recorded[cycle][0], rel_tol=1e-6, abs_tol=1e-9)
            for cycle, seconds in reported.items()
        )
        return None if alike else "the reports of its turns differ from its passes"


class _Block:
    """Repetition of a block in progress."""

    def __init__(
        self,
        entries: Sequence[BlockEntry],
        servers: ForkServers,
        folder: Path,
        watch: Watch,
        settled: Settled,
    ) -> None:
        self.seats: dict[int, _Seat] = {}
        self.outcomes: dict[int, Outcome] = {}
        self._entries, self._servers, self._folder, self._watch = entries, servers, folder, watch
        self._settled = settled
        self._name = uuid.uuid4().hex[:12]
        self._cycle = 0
        self._anchor: int | None = None  # of later parts
        self._waiting = deque(range(len(entries)))
        self._alone: deque[int] = deque()  # entries that need too much memory together with others
        self._tried: set[int] = set()  # entries that had no memory together with others
        self._needed: dict[int, int] = {}  # bytes that evicted entries used
        most_threads = max((entry.spec.threads for entry in entries), default=1)
        self._n_at_once = max(1, len(list_usable_cpus()) // most_threads)
        is_on_gpu = any(entry.spec.device == "cuda" for entry in entries)
        self._n_checking = 1 if is_on_gpu else self._n_at_once  # passes never share a GPU

    def run(self) -> None:
        while self._waiting or self._alone:
            if not self._waiting:
                self._finish(list(self.seats))
                self._waiting.append(self._alone.popleft())
            self._prepare_part()
            self._run_cycles()
            ready = {n: seat.progress for n, seat in self.seats.items()}
            if self._anchor not in ready:
                self._anchor = find_fastest(ready) if ready else None
            self._finish([number for number in ready if number != self._anchor])
            if not self._waiting:  # else a later part needs it, or a member that had to make room
                self._finish([number for number in ready if number == self._anchor])
        self._finish(list(self.seats))

    def end(self) -> None:
        """End the workers that are still running, as after an error."""
        for seat in self.seats.values():
            with suppress(OSError):
                seat.worker.child.end()
            with suppress(OSError):  # the directory itself may have caused the error
                drop_leftovers(seat.entry.path)
            drop_log(seat.entry.log)

    def _prepare_part(self) -> None:
        """Start workers side by side, as many as memory allows, and wait until all are ready."""
        while True:
            while self._waiting and self._may_start(self._waiting[0]):
                self._start(self._waiting.popleft())
            if all(seat.is_prepared for seat in self.seats.values()):
                return
            self._wait()

    def _may_start(self, number: int) -> bool:
        preparing = [seat for seat in self.seats.values() if not seat.is_prepared]
        if len(preparing) >= self._n_at_once:
            return False
        if len(self.seats) <= 1:
            return True  # at least one joins the first; it is evicted if memory does not suffice
        used = self._watch.used_bytes
        expected = max(used.values(), default=USUAL_BYTES)
        planned = max(expected, self._needed.get(number, 0))
        for seat in self.seats.values():
            now = used.get(seat.worker.child.pid or 0, 0)
            planned += now if seat.is_prepared else max(now, expected)
        return planned <= compute_memory_share()

    def _start(self, number: int) -> None:
        entry = self._entries[number]
        drop_leftovers(entry.path)
        reason = explain_unstartable(entry.spec)
        if reason is not None:
            self._settle(number, record_unmeasured(entry.spec, entry.path, "unsupported", reason))
            return
        with convert_write_errors(entry.log):
            entry.log.parent.mkdir(parents=True, exist_ok=True)
            entry.log.touch()
        folder = self._folder / str(number)
        folder.mkdir(exist_ok=True)
        worker = launch_worker(entry.spec, entry.path, entry.log, folder, self._name, self._servers)
        self.seats[number] = _Seat(entry, worker)

    def _run_cycles(self) -> None:
        while True:
            progress = {number: seat.progress for number, seat in self.seats.items()}
            base = self._anchor if self._anchor in progress else None
            active = list_unsettled(progress, base) if progress else []
            if not active:
                return
            kind = MARKED if is_marked(self._cycle) else WHOLE
            for number in shuffle(active, self._name, self._cycle):
                if number in self.seats:
                    self.seats[number].give(Command(kind, self._cycle))
                    while number in self.seats and self.seats[number].worker.child.is_active:
                        self._wait()
            self._cycle += 1

    def _finish(self, numbers: Sequence[int]) -> None:
        """End the turns of workers, and let them check their results side by side.

        The last checks compare times only with each other, within wide limits. Afterwards workers
        end one by one, so that each can compare its results with the records before it.
        """
        waiting = deque(number for number in numbers if number in self.seats)
        checking: list[int] = []
        while waiting or checking:
            while waiting and len(checking) < self._n_checking:
                checking.append(waiting.popleft())
                self.seats[checking[-1]].give(Command(LAST, self._cycle))
            if not any(n in self.seats and self.seats[n].is_checked for n in checking):
                self._wait()  # unless another one became checked while one ended
            checked = [n for n in checking if n in self.seats and self.seats[n].is_checked]
            for number in checked:
                if number in self.seats:  # it may have ended while another one was waited for
                    self.seats[number].give(Command(END, self._cycle))
                while number in self.seats:
                    self._wait()
            checking = [n for n in checking if n in self.seats]
            waiting = deque(n for n in waiting if n in self.seats)

    def _wait(self) -> None:
        """Wait until something happens, and settle the workers that have ended."""
        children = [seat.worker.child for seat in self.seats.values()]
        self._watch.wait(children)
        for number, seat in list(self.seats.items()):
            seat.take_messages()
            seat.check_channel()
            if seat.worker.child.has_ended:
                self._end_seat(number, seat)
        self._evict_youngest()

    def _end_seat(self, number: int, seat: _Seat) -> None:
        """Settle a worker that has ended, or let it try again without others."""
        entry, child = seat.entry, seat.worker.child
        outcome = settle_round(seat.worker, entry.path, entry.log, entry.records_invalid_data)
        del self.seats[number]
        running = [other.worker for other in self.seats.values()]
        workers = {other.child.pid: other.mark for other in running if other.child.pid is not None}
        end_strays(workers, self._watch.members())
        if isinstance(outcome, Record) and outcome.status == "ok":
            fault = seat.find_false_report(outcome)
            if fault is not None:
                outcome = record_unmeasured(entry.spec, entry.path, "wrong_result", fault)
        lacked_memory = isinstance(outcome, Record) and outcome.status == "oom"
        if lacked_memory and child.excess is None and self.seats and number not in self._tried:
            self._tried.add(number)  # the others' memory may have been missing
            self._alone.append(number)
            entry.path.unlink(missing_ok=True)  # an interrupted run must not leave it as the result
            return
        self._settle(number, outcome)

    def _evict_youngest(self) -> None:
        """End the youngest worker if all together use too much memory; it is measured later."""
        used = self._watch.used_bytes
        total = sum(used.get(seat.worker.child.pid or 0, 0) for seat in self.seats.values())
        if len(self.seats) < 2 or total <= compute_memory_share():
            return
        number = list(self.seats)[-1]
        seat = self.seats.pop(number)
        self._needed[number] = used.pop(seat.worker.child.pid or 0, 0)
        seat.worker.child.exceed("oom", "the block needs too much memory")
        seat.worker.child.end()
        drop_leftovers(seat.entry.path)
        drop_log(seat.entry.log)
        (self._waiting if len(self.seats) > 1 else self._alone).append(number)

    def _settle(self, number: int, outcome: Outcome) -> None:
        self.outcomes[number] = outcome
        self._settled(number, outcome)


def compute_memory_share() -> int:
    """Return the bytes that all workers of a block may use together."""
    return int(MEMORY_SHARE * read_memory_bytes())
