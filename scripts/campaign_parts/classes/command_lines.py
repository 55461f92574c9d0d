"""Command lines drawn from the types of the configuration, right and wrong ones.

Promised: exit code 0 or 1, one line for what is wrong, no stack, and no long wait. Most are run in
one process, which stops before it would measure; options, which the measuring process checks, and
a sample of all as commands of their own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.campaign_parts.case import Case, Outcome, Run
from scripts.campaign_parts.child import a_child
from scripts.campaign_parts.judging import fault_of_ending, first_fault, last_line
from scripts.campaign_parts.place import Ended, Place, python
from scripts.campaign_parts.typed_lines import (
    RIGHT,
    WRONG,
    bench_line,
    collect_line,
    data_line,
    option_line,
    schedule_line,
)

N_CASES = 500
CHILD = "scripts.campaign_parts.takes_lines"
LIMIT_S = 20.0
PROCESS_LIMIT_S = 60.0
MODULES = {
    "bench": "harness.commands.bench",
    "bench-schedule": "harness.commands.schedule",
    "bench-collect": "harness.commands.collect",
    "bench-data": "harness.commands.data",
}
# Of twenty lines in turn; those of options are all processes of their own.
TURNS = (
    *(("bench", bench_line, 13), ("bench", option_line, 2)),
    *(("bench-schedule", schedule_line, 2), ("bench-collect", collect_line, 2)),
    *(("bench-data", data_line, 1),),
)
LINES = [(command, draw) for command, draw, n in TURNS for _ in range(n)]
SAMPLE_EVERY = 17  # case is a process of its own


def does(number: int, rng: random.Random) -> dict[str, Any]:
    """A command line, what is to be expected of it, and whether it is a process of its own."""
    command, draw = LINES[number % len(LINES)]
    arguments, expected = draw(rng)
    is_process = draw is option_line or number % SAMPLE_EVERY == 0
    return {
        "command": command,
        "arguments": arguments,
        "expected": expected,
        "is_process": is_process,
    }


@contextmanager
def runner(folder: Path) -> Iterator[Run]:
    """One process takes most lines."""
    cache = folder / "cache"
    with a_child(CHILD, Place(folder, cache)) as child:

        def run(case: Case, at: Path) -> Outcome:
            place = Place(at, cache)
            command, arguments = case.does["command"], case.does["arguments"]
            expected = case.does["expected"]
            if not case.does["is_process"]:
                question = {"command": command, "arguments": arguments, "folder": str(at)}
                ended = _as_ended(child.ask(question, LIMIT_S))
                if not (ended.returncode == 0 and expected == WRONG):
                    return judged(ended, command, expected)
            # Some of what is wrong, only the process that would measure can see.
            ended = place.run(python(MODULES[command], *arguments), PROCESS_LIMIT_S)
            return judged(ended, command, expected)

        yield run


def _as_ended(answer: dict[str, Any]) -> Ended:
    if "hung" in answer:
        return Ended(None, "", "", answer["hung"])
    if "code" not in answer:
        return Ended(-1, "", answer.get("traceback", str(answer)), 0.0)
    return Ended(answer["code"], answer["stdout"], answer["stderr"], 0.0)


def judged(ended: Ended, command: str, expected: str) -> Outcome:
    """The verdict on how a command took its line."""
    return first_fault(
        fault_of_ending(ended, (0, 1)),
        _fault_of_refusal(ended, command),
        _fault_of_expectation(ended, expected),
    )


def _fault_of_refusal(ended: Ended, command: str) -> Outcome | None:
    lines = [line for line in ended.stderr.splitlines() if line.strip()]
    ours = [line for line in lines if not line.startswith("[")]  # [1/1]: what is being measured
    if ended.returncode != 1 or (len(ours) == 1 and ours[0].startswith(f"{command}: ")):
        return None
    return Outcome("other", f"{len(ours)} lines for one refusal; {last_line(ended)}")


def _fault_of_expectation(ended: Ended, expected: str) -> Outcome | None:
    if expected == WRONG and ended.returncode == 0:
        if "unsupported" in ended.stdout:
            return Outcome("not_judged", last_line(ended))
        return Outcome("accepted", f"exit code 0; {last_line(ended)}")
    if expected == RIGHT and ended.returncode == 1:
        return Outcome("other", f"right, but refused: {last_line(ended)}")
    return None
