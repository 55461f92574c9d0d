"""Clock that a test advances, a system with given durations, and the format of timelines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dynbatch.harness.contracts.system import Clock, Counters, RunSettings
from dynbatch.systems.null_system import Control

MS = 1_000_000
# "Trace Event Format", Duffin 2016: the required fields of each kind of event, and their types.
EVERY: dict[str, type | tuple[type, ...]] = {"ph": str, "pid": int, "tid": int, "name": str}
BY_PHASE: dict[str, dict[str, type | tuple[type, ...]]] = {
    "X": {"ts": (int, float), "dur": (int, float), "cat": str, "args": dict},
    "M": {"args": dict},
}
METADATA = {"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}


class FakeTime:
    """Clock that advances only by `move`, and counts its readings."""

    def __init__(self) -> None:
        self.now = 5_000 * MS
        self.n_readings = 0

    def __call__(self) -> int:
        self.n_readings += 1
        return self.now

    def move(self, milliseconds: float) -> None:
        self.now += round(milliseconds * MS)


class Scripted(Control):
    """System whose phases take the time given by a mini-batch; loading also takes untimed time."""

    def __init__(self, time: FakeTime) -> None:
        super().__init__(RunSettings("train", "cpu", 1, 1, 0.1, 0))
        self.time = time
        self.events: list[str] = []

    def load(self, instances: Sequence[Any]) -> None:
        self.events.append("load")
        self.time.move(1000)
        self.costs = instances

    def run(self, clock: Clock, *, update: bool = True) -> None:
        self.events.append("run")
        for phase, cost in zip(("construct", "forward"), self.costs, strict=True):
            self.time.move(cost)
            clock.mark(phase)
        self.time.move(0.5)  # after the last mark

    def counters(self) -> Counters:
        return Counters(n_batches=len(self.events), n_launches=None)

    def synchronize(self) -> None:
        self.events.append("synchronize")


def checked(text: str) -> list[dict[str, Any]]:
    """Check the format of a file, and that complete events of a track nest; return its events."""
    content = json.loads(text)
    assert content["displayTimeUnit"] in ("ms", "ns")
    assert all(isinstance(value, str) for value in content["otherData"].values())
    open_until: dict[int, list[float]] = {}
    events: list[dict[str, Any]] = content["traceEvents"]
    for event in events:
        fields = EVERY | BY_PHASE[event["ph"]]
        assert fields.keys() == event.keys() | {"cat"} & fields.keys()
        assert all(isinstance(event[key], kind) for key, kind in fields.items())
        if event["ph"] == "M":
            assert METADATA[event["name"]] in event["args"]
    complete = [event for event in events if event["ph"] == "X"]
    for event in sorted(complete, key=lambda one: (one["tid"], one["ts"], -one["dur"])):
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        ends = open_until.setdefault(event["tid"], [])
        while ends and ends[-1] <= event["ts"] + 1e-6:  # sums of decimals
            ends.pop()
        end = event["ts"] + event["dur"]
        assert not ends or end <= ends[-1] + 1e-6, f"{event['name']} ends behind what it is in"
        ends.append(end)
    return events
