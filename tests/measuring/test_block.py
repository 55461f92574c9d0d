"""Blocks: live systems take turns, and a faulty one costs only itself."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from dynbatch.harness.errors import BenchError
from dynbatch.harness.measuring import block
from dynbatch.harness.measuring.block import BlockEntry, measure_block
from dynbatch.harness.measuring.checks.timed_check import (
    OUTSIDE_S,
    OUTSIDE_SHARE,
    find_outside_fault,
)
from dynbatch.harness.measuring.processes import supervise
from dynbatch.harness.measuring.processes.fork_server import ForkServers
from dynbatch.harness.measuring.turns import END, LAST, Command
from dynbatch.harness.records.cross_check import cross_check_records
from dynbatch.harness.records.record import Record, locate_record
from dynbatch.harness.records.turns import collect_turn_seconds, compute_ratio
from dynbatch.harness.trials.spec import Limits, Timing, TrialSpec
from tests.support.measured import MakeSpec, spec_of
from tests.support.processes import wait_until

Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.slow  # together they take seconds

TIMING = Timing(min_seconds=0.0, n_mini_batches=2, min_passes=6)
# `file` has the code of a fault, which happens at the end of `prepare`, or with `at=run` in the
# system's turns, after all checks.
FAULTY = """\
import os
import sys
import threading

from tests.support import odd_system

REPORT = b'{"seconds": 1e-6, "timed_s": 1e-6, "is_disturbed": false}\\n'


def burn():
    while True:
        sum(range(1000))


class Adapter(odd_system.Adapter):
    def prepare(self, model, weights):
        super().prepare(model, weights)
        if self.options.at == "prepare":
            exec(self.options.file)

    def run(self, clock, *, update=True):
        super().run(clock, update=update)
        if self.options.at == "run" and self.n_runs > 60:
            exec(self.options.file)
"""


def entry_of(spec: TrialSpec, folder: Path, name: str) -> BlockEntry:
    return BlockEntry(spec, folder / "raw" / name / "r0.json", folder / "logs" / f"{name}.log")


def measure(folder: Path, **specs: TrialSpec) -> dict[str, Record]:
    """Measure a block and return its records by name; none may be refused."""
    entries = [entry_of(spec, folder, name) for name, spec in specs.items()]
    with ForkServers() as servers:
        outcomes = measure_block(entries, servers)
    found = {}
    for name, outcome in zip(specs, outcomes, strict=True):
        assert isinstance(outcome, Record), outcome
        found[name] = outcome
    assert not psutil.Process().children(recursive=True)
    return found


def block_of(specs: list[TrialSpec], folder: Path) -> Any:
    """Return a block whose workers a test replaces."""
    entries = [entry_of(spec, folder, str(k)) for k, spec in enumerate(specs)]
    watch = SimpleNamespace(used_bytes={})
    return block._Block(entries, ForkServers(), folder, watch, print)


def cycles_of(record: Record) -> set[int]:
    return {turn.cycle for turn in record.turns}


def test_systems_of_a_block_share_its_cycles(make_spec: MakeSpec, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    quick = make_spec(timing=TIMING, system_options={"log": log})
    found = measure(tmp_path, a=quick, b=quick, c=make_spec(timing=TIMING))
    assert {record.status for record in found.values()} == {"ok"}
    assert len({record.block for record in found.values()}) == 1
    shared = set.intersection(*map(cycles_of, found.values()))
    assert len(shared) >= TIMING.min_passes
    pairs = [collect_turn_seconds(found[name].passes_s, found[name].turns) for name in ("a", "b")]
    assert compute_ratio(*pairs) is not None
    # Runs of the two processes never interleave within a turn: a turn has many runs of one.
    lines = [line.split(", ")[1] for line in Path(log).read_text().splitlines()]
    switches = sum(first != second for first, second in itertools.pairwise(lines))
    assert switches < len(lines) / 4


SEND = "os.write(int(sys.argv[-1]), {})"
FAULTS: dict[str, tuple[str, dict[str, float], set[str]]] = {
    "aborts": ("odd_system.do('abort')", {}, {"crash"}),
    "exits": ("odd_system.do('exit:0')", {}, {"crash"}),
    "waits": ("odd_system.do('wait')", {"time_s": 3.0}, {"timeout"}),
    "loops": ("odd_system.do('loop')", {"time_s": 3.0}, {"timeout"}),
    "eats memory": ("odd_system.do('hog')", {"memory_bytes": 500 * 2**20}, {"oom"}),
    "raises": ("odd_system.do('raise:value')", {}, {"crash"}),
    "closes its socket": ("os.close(int(sys.argv[-1])); odd_system.do('wait')", {}, {"crash"}),
    "sends nothing": (SEND.format(r"b'[]\n'"), {}, {"crash"}),
    "sends a report": (SEND.format("REPORT"), {}, {"crash", "wrong_result"}),
    "sends many lists": (SEND.format(r"b'[' * 60000 + b'\n'"), {}, {"crash", "wrong_result"}),
    "sends a long number": (SEND.format("REPORT.replace(b'1e-6', b'9' * 400)"), {},
                            {"crash", "wrong_result"}),
    "sends no line": (SEND.format("b'x' * 70000"), {}, {"crash", "wrong_result"}),
}  # fmt: skip


def test_a_fault_costs_only_its_own_system(
    make_spec: MakeSpec, make_module: Callable[[str], str], tmp_path: Path, monkeypatch: Patch
) -> None:
    """All faulty systems are in one block, between two good ones."""
    monkeypatch.setattr(block, "CLOSED_S", 0.1)
    own = {"adapter": make_module(FAULTY), "timing": TIMING}
    good = make_spec(timing=replace(TIMING, min_seconds=1.0))
    faulty = {}
    for name, (code, limits, _) in FAULTS.items():
        options = {"at": "run", "file": code}
        faulty[name] = make_spec(**own, system_options=options, limits=Limits(**limits))
    found = measure(tmp_path, **{"first": good, **faulty, "last": good})
    statuses = {name: found[name].status for name in FAULTS}
    assert {name: s for name, s in statuses.items() if s not in FAULTS[name][2]} == {}
    assert [found[name].status for name in ("first", "last")] == ["ok", "ok"]
    shared = cycles_of(found["first"]) & cycles_of(found["last"])
    assert len(shared) >= TIMING.min_passes


def test_time_counts_while_a_child_is_active_and_watched(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """With a clock that the test advances, and a process that only waits."""
    now = [100.0]
    monkeypatch.setattr(supervise, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(supervise, "BEGIN", "tests.support.waiting")
    child = supervise.ChildProcess(
        sys.executable, (), {**os.environ}, Limits(time_s=100.0), tmp_path / "log"
    )

    def watch(seconds: float, step_s: float = supervise.POLL_S) -> None:
        for _ in range(round(seconds / step_s)):
            now[0] += step_s
            child.charge_time()

    try:
        for is_active, elapsed_s in ((True, 60.0), (False, 1000.0), (True, 18.0)):
            child.is_active = is_active
            watch(elapsed_s)
            assert child.excess is None
        watch(1000.0, step_s=1000.0)  # this process is stopped: LOOK_S count
        assert child.excess is None
        watch(3.0)
        assert child.excess == ("timeout", "not finished within limits.time_s=100")
    finally:
        child.end()


def test_wrong_input_refuses_its_own_system(make_spec: MakeSpec, tmp_path: Path) -> None:
    wrong = entry_of(make_spec(dataset_options={"n_leaves": 3}, timing=TIMING), tmp_path, "wrong")
    entries = [entry_of(make_spec(timing=TIMING), tmp_path, "right"), wrong]
    with ForkServers() as servers:
        right, refused = measure_block(entries, servers)
    assert right.status == "ok"
    assert isinstance(refused, BenchError)
    assert "n_leaves" in str(refused)
    assert not wrong.path.parent.exists()
    assert list((tmp_path / "logs").iterdir()) == []


def test_a_thread_or_a_child_that_works_out_of_turn_is_caught(
    make_spec: MakeSpec, make_module: Callable[[str], str], tmp_path: Path
) -> None:
    timing = Timing(min_seconds=1.0, n_mini_batches=2)
    adapter = make_module(FAULTY)
    ways = {
        "thread": "threading.Thread(target=burn, daemon=True).start()",
        "child": "if os.fork() == 0: burn()",
    }
    busy = {
        name: make_spec(adapter=adapter, timing=timing, system_options={"file": code})
        for name, code in ways.items()
    }
    found = measure(tmp_path, **busy, honest=make_spec(timing=timing))
    assert found["honest"].status == "ok"
    assert [found[name].status for name in ways] == ["wrong_result"] * 2
    assert "while other systems had their turn" in str(found["thread"].reason)


def test_contradictions_within_a_block_are_settled_by_the_reference(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    """Neither has a record while the other is checked; a wrong system must not cost a right one."""
    specs = [spec_of(make_spec, kind) for kind in ("Honest", "WrongForTheSecond")]
    entries = [
        BlockEntry(spec, locate_record(tmp_path, spec), tmp_path / f"{k}.log")
        for k, spec in enumerate(specs)
    ]
    with ForkServers() as servers:
        shown = cross_check_records(measure_block(entries, servers))
    assert [record.status for record in shown] == ["ok", "wrong_result"]


@pytest.mark.parametrize(
    ("device", "n_at_once", "dying"), [("cpu", 3, None), ("cuda", 1, None), ("cpu", 3, 2)]
)
def test_last_checks_run_side_by_side_and_workers_end_one_by_one(
    make_spec: MakeSpec, tmp_path: Path, device: str, n_at_once: int, dying: int | None
) -> None:
    made = block_of([make_spec(device=device) for _ in range(5)], tmp_path)
    if device == "cpu":
        made._n_checking = 3
    events: list[tuple[str, int]] = []

    class Seat(SimpleNamespace):
        def give(self, command: Command) -> None:
            events.append((command.kind, self.number))
            self.given = command.kind

    made.seats = {k: Seat(number=k, given="", is_checked=False) for k in range(5)}

    def wait() -> None:
        """Let workers that must end do so; the youngest of those that check are done."""
        ending = [seat for seat in made.seats.values() if seat.given == END]
        assert len(ending) <= 1
        assert ending or not any(seat.is_checked for seat in made.seats.values()), "no news comes"
        for seat in ending:
            del made.seats[seat.number]
            if seat.number == 1 and made.seats.pop(dying, None):  # another one ends meanwhile
                events.append(("died", dying))
        checking = [s for s in made.seats.values() if s.given == LAST and not s.is_checked]
        for seat in checking[-1:] if ending else checking[-2:]:
            seat.is_checked = True

    made._wait = wait
    made._finish([0, 1, 2, 3, 4])
    assert not made.seats
    alive = list(itertools.accumulate(1 if kind == LAST else -1 for kind, _ in events))
    assert max(alive) == n_at_once
    ended = sorted(number for kind, number in events if kind == END)
    assert ended == [number for number in range(5) if number != dying]


def test_a_system_without_memory_beside_others_is_tried_alone(
    make_spec: MakeSpec, make_module: Callable[[str], str], tmp_path: Path
) -> None:
    """It finds no memory while another process of the block is alive.

    Until it has been tried alone it has no record, which an interrupted run would leave.
    """
    counter, record = tmp_path / "starts", tmp_path / "raw" / "needy" / "r0.json"
    code = (
        f"from pathlib import Path; path = Path({str(counter)!r}); path.touch()\n"
        "path.write_text(path.read_text() + 'x')\n"
        "if path.read_text() == 'x': raise MemoryError\n"
        f"assert not Path({str(record)!r}).exists()"
    )
    needy = make_spec(adapter=make_module(FAULTY), timing=TIMING, system_options={"file": code})
    slow = make_spec(system_options={"pause_s": 2.0}, timing=TIMING)
    found = measure(tmp_path, slow=slow, needy=needy)
    assert {name: record.status for name, record in found.items()} == {"slow": "ok", "needy": "ok"}
    assert counter.read_text() == "xx"
    assert not cycles_of(found["slow"]) & cycles_of(found["needy"])


def test_a_little_cpu_time_out_of_turn_is_allowed() -> None:
    assert find_outside_fault(10.0, 0.99 * (10.0 * OUTSIDE_SHARE + OUTSIDE_S)) is None
    assert find_outside_fault(10.0, 1.01 * (10.0 * OUTSIDE_SHARE + OUTSIDE_S)) is not None


def test_a_block_that_needs_too_much_memory_is_measured_in_parts(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: Patch
) -> None:
    starts: list[int] = []
    may_start = block._Block._may_start

    def limited(self: Any, number: int) -> bool:
        fits = len(self.seats) < 2 and may_start(self, number)
        starts.extend([number] if fits else [])
        return fits

    monkeypatch.setattr(block._Block, "_may_start", limited)
    spec = make_spec(timing=TIMING)
    found = measure(tmp_path, a=spec, b=spec, c=spec, d=spec)
    assert starts == [0, 1, 2, 3]
    assert {record.status for record in found.values()} == {"ok"}
    anchors = [
        name
        for name, record in found.items()
        if all(len(cycles_of(record) & cycles_of(other)) >= 6 for other in found.values())
    ]
    assert len(anchors) == 1, "one system takes turns in all parts"


def test_a_system_that_does_not_fit_beside_others_is_measured_alone(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(block, "compute_memory_share", lambda: 1)
    spec = make_spec(timing=TIMING, system_options={"pause_s": 0.5})
    found = measure(tmp_path, a=spec, b=spec)
    assert {record.status for record in found.values()} == {"ok"}
    assert not cycles_of(found["a"]) & cycles_of(found["b"])


@pytest.mark.parametrize("gib", [(6, 6, 6, 3), (1, 1, 1, 18)])
def test_an_evicted_system_waits_until_others_have_ended(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: Patch, gib: tuple[int, ...]
) -> None:
    """It would be evicted again, for ever: because of their memory, or of its own."""
    monkeypatch.setattr(block, "compute_memory_share", lambda: 20 * 2**30)
    made = block_of([make_spec() for _ in gib], tmp_path)
    made._waiting.clear()
    for number, entry in enumerate(made._entries):
        child = SimpleNamespace(pid=number + 1, exceed=lambda *_: None, end=lambda: None)
        worker = SimpleNamespace(child=child)
        made.seats[number] = SimpleNamespace(entry=entry, worker=worker, is_prepared=number < 3)
        made._watch.used_bytes[child.pid] = gib[number] * 2**30
    made._evict_youngest()
    assert (list(made.seats), list(made._waiting)) == ([0, 1, 2], [3])
    made._evict_youngest()
    assert list(made.seats) == [0, 1, 2], "the others fit"
    assert not made._may_start(3)
    del made.seats[1], made.seats[2]
    assert made._may_start(3)


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_a_killed_parent_leaves_no_worker(make_spec: MakeSpec, tmp_path: Path) -> None:
    log = tmp_path / "log"
    timing = Timing(min_seconds=1e4, max_seconds=1e5, n_mini_batches=2)
    spec = make_spec(timing=timing, system_options={"log": str(log)})
    parent = multiprocessing.Process(
        target=measure, args=(tmp_path,), kwargs={"a": spec, "b": spec}
    )
    parent.start()

    def pids() -> set[int]:
        lines = log.read_text().splitlines() if log.exists() else []
        return {int(line.split(", ")[1]) for line in lines if line.startswith("goes on")}

    assert wait_until(lambda: len(pids()) == 2 and len(log.read_text().splitlines()) > 500)
    parent.kill()
    parent.join()
    assert wait_until(lambda: not any(map(psutil.pid_exists, pids())))
    assert not list(tmp_path.rglob("r0.json"))
