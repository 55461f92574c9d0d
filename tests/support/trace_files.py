"""Timelines as files, checked against the format that viewers read."""

from __future__ import annotations

import json
from typing import Any

# "Trace Event Format", Duffin 2016: the required fields of each kind of event, and their types.
EVERY: dict[str, type | tuple[type, ...]] = {"ph": str, "pid": int, "tid": int, "name": str}
BY_PHASE: dict[str, dict[str, type | tuple[type, ...]]] = {
    "X": {"ts": (int, float), "dur": (int, float), "cat": str, "args": dict},
    "M": {"args": dict},
}
METADATA = {"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}


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
