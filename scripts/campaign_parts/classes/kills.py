"""Kills of `bench` and of the pipeline at random and aimed moments, and the same command again.

Promised: what was complete stays as it is, nothing is measured twice or beside another, nothing is
left over, and in the end the records are those of a run that nobody killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from scripts.campaign_parts.case import Case, Outcome, Run
from scripts.campaign_parts.judging import (
    fault_of_ending,
    fault_of_leftovers,
    fault_of_records,
    fault_of_survivors,
    first_fault,
)
from scripts.campaign_parts.kept import Kept
from scripts.campaign_parts.place import Ended, Place
from scripts.campaign_parts.small_bench import (
    LIMIT_S,
    LOG,
    Pipeline,
    beside_each_other,
    expected_of,
    logged_sweep,
    n_noted,
)

N_CASES = 50
PIPELINE_EVERY = 5  # case; the others are of bench
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
BENCH_MOMENTS = ("worker_starts", "record_written", "any")
SWEEP_S = 8.0  # about what the sweep takes
PIPELINE_S = 14.0
PAUSE_S = 0.3
WORKER = "harness.measuring.worker"
NEVER_S = 60.0  # a moment that has not come by then
POLL_S = 0.002
ENDS_S = 30.0  # for a command that was told to end
# What a command may exit with after a signal: 0 where it was done before.
EXITS = {"SIGKILL": (-9, 0), "SIGTERM": (143, 0), "SIGINT": (130, 0)}


def does(number: int, rng: random.Random) -> dict[str, Any]:
    """Which command is killed when, and whether the next one begins at once."""
    is_pipeline = number % PIPELINE_EVERY == PIPELINE_EVERY - 1
    moment = "any" if is_pipeline else BENCH_MOMENTS[number % len(BENCH_MOMENTS)]
    latest_s = (PIPELINE_S if is_pipeline else SWEEP_S) if moment == "any" else 0.3
    return {
        "command": "snakemake" if is_pipeline else "bench",
        "signal": SIGNALS[number // 3 % len(SIGNALS)],
        "moment": moment,
        "nth": rng.randint(1, 3),
        "after_s": round(rng.uniform(0, latest_s), 3),
        "again_at_once": rng.random() < 0.5,
    }


@dataclass(frozen=True, slots=True)
class Command:
    """What is killed, and the records that it leaves when it is not."""

    line: Callable[[Place], list[str]]
    prepare: Callable[[Place], None]
    expected: frozenset[str]


@contextmanager
def runner(folder: Path) -> Iterator[Run]:
    """Run both commands once without a kill, for their records."""
    cache = folder / "cache"
    commands = {"bench": _undisturbed(_bench, _nothing, folder / "bench", cache)}

    def run(case: Case, place: Path) -> Outcome:
        name = case.does["command"]
        if name not in commands:  # the pipeline takes its time
            commands[name] = _undisturbed(_pipeline, _write, folder / name, cache)
        return killed(commands[name], case, Place(place, cache))

    yield run


def _bench(place: Place) -> list[str]:
    return logged_sweep(place, PAUSE_S)


def _nothing(_: Place) -> None:
    return


def _pipeline(place: Place) -> list[str]:
    return Pipeline(place.folder).command()


def _write(place: Place) -> None:
    Pipeline(place.folder).write()


def _undisturbed(
    line: Callable[[Place], list[str]],
    prepare: Callable[[Place], None],
    folder: Path,
    cache: Path,
) -> Command:
    place = Place(folder, cache)
    folder.mkdir()
    prepare(place)
    ended = place.run(line(place), LIMIT_S)
    if ended.returncode != 0:
        raise RuntimeError(f"the command fails without a kill: {ended.stderr[-300:]}")
    return Command(line, prepare, expected_of(place))


def killed(command: Command, case: Case, place: Place) -> Outcome:
    """Kill, look at what is left, and give the same command again."""
    command.prepare(place)
    first = _kill(command.line(place), case, place)
    is_bench = case.does["command"] == "bench"
    told = case.does["signal"] != "SIGKILL"
    faults = [fault_of_end(first, case.does["signal"]) if is_bench else _hang(first)]
    if is_bench and not case.does["again_at_once"]:
        # Nobody can tidy files up after a kill -9 but the next run.
        faults += [fault_of_orphans(place), fault_of_leftovers(place) if told else None]
    before = Kept.of(place.results)
    again = place.run(command.line(place), LIMIT_S)
    faults += [
        fault_of_ending(again, (0,)),
        fault_of_records(place, before, command.expected),
        _beside(place),
        fault_of_leftovers(place, temporary=is_bench and told),
    ]
    worst = sorted((one for one in faults if one is not None), key=_gravity)
    return first_fault(*worst)


def fault_of_orphans(place: Place) -> Outcome | None:
    """Processes that outlive their parent, or that measure on before they end by themselves."""
    n_before = n_noted(place.folder / LOG)
    survivors = fault_of_survivors(place)
    if survivors is None and n_noted(place.folder / LOG) > n_before:
        return Outcome("leftover", "a worker measured on after its parent was gone")
    return survivors


def _gravity(outcome: Outcome) -> int:
    order = ("lost", "measured_twice", "leftover", "hang", "traceback")
    return order.index(outcome.verdict) if outcome.verdict in order else len(order)


def fault_of_end(ended: Ended, name: str) -> Outcome | None:
    """How `bench` ends when it is told to: one line of its own, and the code of the signal."""
    fault = fault_of_ending(ended, EXITS[name])
    if fault is not None or name == "SIGKILL" or ended.returncode == 0:
        return fault
    words = [line for line in ended.stderr.splitlines() if line.strip() and line[0] != "["]
    is_said = len(words) == 1 and words[0].startswith("bench: ")
    return None if is_said else Outcome("other", f"{len(words)} lines after {name}, not one")


def _hang(ended: Ended) -> Outcome | None:
    """What Snakemake says and exits with is its own."""
    return Outcome("hang", "did not end when told to") if ended.returncode is None else None


def _beside(place: Place) -> Outcome | None:
    pair = beside_each_other(place.folder / LOG)
    if pair is None:
        return None
    return Outcome("measured_twice", f"processes {pair[0]} and {pair[1]} measured at once")


def _kill(line: list[str], case: Case, place: Place) -> Ended:
    """Start a command, wait for the moment, and send the signal."""
    process = place.start(line, name="killed")
    _await_moment(process, case, place)
    time.sleep(case.does["after_s"])
    number = getattr(signal, case.does["signal"])
    with suppress(ProcessLookupError):
        if number == signal.SIGINT:  # as Ctrl-C does, to all in the foreground
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
    return place.wait(process, ENDS_S, name="killed")


def _await_moment(process: subprocess.Popen[bytes], case: Case, place: Place) -> None:
    nth, until = case.does["nth"], time.monotonic() + NEVER_S
    workers: set[int] = set()
    moments: dict[str, Callable[[], bool]] = {
        # Not before: what happens to Python while it starts is not ours.
        "any": place.results.exists,
        "worker_starts": lambda: len(workers) >= nth,
        "record_written": lambda: len(list(place.results.glob("raw/*/*r*.json*"))) >= nth,
    }
    has_come = moments[case.does["moment"]]
    while process.poll() is None and time.monotonic() < until and not has_come():
        if case.does["moment"] == "worker_starts":
            workers |= _workers_of(process.pid)
        time.sleep(POLL_S)


def _workers_of(pid: int) -> set[int]:
    found = set()
    with suppress(psutil.Error):
        for child in psutil.Process(pid).children():
            with suppress(psutil.Error):
                if WORKER in child.cmdline():
                    found.add(child.pid)
    return found
