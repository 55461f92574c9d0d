"""The engine with a fault in its generated code: one thread, or all, raise within a stage.

`kind` names the error, `thread` who raises it (-1: every thread).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.contracts.system import RunSettings
from harness.engine.backends.compiled import loop
from harness.engine.backends.compiled.source import LoopSource, write_loop
from harness.engine.lowering.plan import Plan
from systems.on_core.vertex import Adapter as Engine
from systems.on_core.vertex import CoreOptions

FAULTS = {
    "bounds": 'raise IndexError("row 7 of 5")',
    "memory": 'raise MemoryError("Allocation failed")',
    "shape": "pairs[:1].reshape((3, n_batches + 7))[0, 0] = 1",
}


@dataclass(frozen=True, slots=True)
class FailingOptions(CoreOptions):
    """The switches, and the fault."""

    kind: str = "bounds"
    thread: int = 1


class Adapter(Engine):
    """Its backward stage fails in the middle of its first batch."""

    option_type = FailingOptions
    options: FailingOptions

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        options = self.options

        def failing(plans: Mapping[int, Plan], stage: str, **more: Any) -> LoopSource:
            source = write_loop(plans, stage, **more)
            if stage != "backward":
                return source
            return with_fault(source, options.kind, options.thread)

        loop.write_loop = failing


def with_fault(source: LoopSource, kind: str, thread: int) -> LoopSource:
    """The text of a loop, with a fault at the beginning of every batch but the first."""
    line = "        type_id, b = pairs[i, 0], pairs[i, 1]\n"
    assert line in source.body
    who = "i > 0" if thread < 0 else f"i > 0 and thread == {thread}"
    fault = f"        if {who}:\n            {FAULTS[kind]}\n"
    return replace(source, body=source.body.replace(line, line + fault))
