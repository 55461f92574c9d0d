"""Disks without room, folders that vanish and outputs that nobody takes, in the middle of a run.

Promised: one line and exit code 1, what was measured is kept, nothing is half-written, and the same
command goes on once there is room.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.campaign_parts.case import Case, Outcome, Run
from scripts.campaign_parts.judging import (
    fault_of_ending,
    fault_of_leftovers,
    fault_of_records,
    first_fault,
    last_line,
)
from scripts.campaign_parts.kept import Kept
from scripts.campaign_parts.place import Ended, Place
from scripts.campaign_parts.small_bench import LIMIT_S, LOG, expected_of, logged_sweep

N_CASES = 30
KINDS = (
    *("disk_of_results", "disk_of_temporary", "disk_of_cache", "small_files"),
    *("results_removed", "results_replaced", "results_dangling", "raw_replaced"),
    *("stdout_full", "stdout_closed"),
)
DISKS = {"disk_of_results": "results", "disk_of_temporary": "tmp", "disk_of_cache": "cache"}
PAUSE_S = 0.2
NEVER_S = 60.0


def does(number: int, rng: random.Random) -> dict[str, Any]:
    """What runs out or vanishes, at how many bytes or records."""
    return {
        "kind": KINDS[number % len(KINDS)],
        "free_bytes": 4096 * rng.randint(0, 12),  # a tmpfs has pages
        "file_bytes": rng.randint(0, 6000),
        "n_records": rng.randint(1, 3),
    }


@contextmanager
def runner(folder: Path) -> Iterator[Run]:
    """Run the sweep once where there is room, for its records."""
    place = Place(folder / "undisturbed", folder / "cache")
    place.folder.mkdir()
    place.run(logged_sweep(place, PAUSE_S), LIMIT_S)
    expected = expected_of(place)

    def run(case: Case, at: Path) -> Outcome:
        kind = case.does["kind"]
        own = Place(at, at / "cache" if kind == "disk_of_cache" else folder / "cache")
        return _on_a_small_disk(case, own, expected) if kind in DISKS else _do(case, own, expected)

    yield run


def _on_a_small_disk(case: Case, place: Place, expected: frozenset[str]) -> Outcome:
    """A tmpfs with a ballast that leaves few bytes free; it is taken away for the second run."""
    disk = place.folder / DISKS[case.does["kind"]]
    disk.mkdir()
    size = 8 * 2**20
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        return Outcome("skipped", "no tmpfs can be mounted here")
    try:
        ballast = disk / ".ballast"
        ballast.write_bytes(b"\0" * (size - case.does["free_bytes"]))
        first = place.run(logged_sweep(place, PAUSE_S), LIMIT_S)
        before = Kept.of(place.results)
        ballast.unlink()
        return _judged(place, first, before, expected)
    finally:
        place.end_all()
        subprocess.run(["umount", "--lazy", str(disk)], capture_output=True, check=False)


def _do(case: Case, place: Place, expected: frozenset[str]) -> Outcome:
    line, kind = logged_sweep(place, PAUSE_S), case.does["kind"]
    if kind == "small_files":
        first = place.run(line, LIMIT_S, file_bytes=case.does["file_bytes"])
    elif kind == "stdout_full":
        first = place.run(line, LIMIT_S, stdout=Path("/dev/full"))
    elif kind == "stdout_closed":
        first = place.run(["sh", "-c", 'exec "$@" >&-', "sh", *line], LIMIT_S)
    else:
        process = place.start(line)
        _await_records(process, place, case.does["n_records"])
        return _after_vanishing(place, place_of_vanishing(kind), process, expected)
    return _judged(place, first, Kept.of(place.results), expected)


def place_of_vanishing(kind: str) -> Callable[[Place], Path]:
    """What to do to the folder of results; returns what is to be deleted before the second run."""

    def moved(place: Place) -> Path:
        part = place.results / "raw" if kind == "raw_replaced" else place.results
        shutil.rmtree(part, ignore_errors=True)
        if kind in ("results_replaced", "raw_replaced"):
            part.write_text("in the way\n")
        if kind == "results_dangling":
            part.symlink_to(place.folder / "nowhere" / "at" / "all")
        return part

    return moved


def _after_vanishing(
    place: Place,
    vanish: Callable[[Place], Path],
    process: subprocess.Popen[bytes],
    expected: frozenset[str],
) -> Outcome:
    """What was there is gone by our own hand: only what is there now is to be kept."""
    part = vanish(place)
    first = place.wait(process, LIMIT_S)
    before = Kept.of(place.results)
    if part.is_symlink() or part.is_file():
        part.unlink()
    return _judged(place, first, before, expected)


def _await_records(process: subprocess.Popen[bytes], place: Place, n: int) -> None:
    until = time.monotonic() + NEVER_S
    while process.poll() is None and time.monotonic() < until:
        if len(Kept.of(place.results).complete) >= n:
            return
        time.sleep(0.01)


def _judged(place: Place, first: Ended, before: Kept, expected: frozenset[str]) -> Outcome:
    (place.folder / LOG).unlink(missing_ok=True)
    left = fault_of_leftovers(place)
    again = place.run(logged_sweep(place, PAUSE_S), LIMIT_S)
    return first_fault(
        fault_of_records(place, before, expected) if again.returncode == 0 else None,
        fault_of_ending(first, (0, 1)),
        _fault_of_lines(first),
        fault_of_ending(again, (0,)),
        left,
        fault_of_leftovers(place),
    )


def _fault_of_lines(ended: Ended) -> Outcome | None:
    """A refusal begins with the command's name and stands in one line."""
    refusals = [line for line in ended.stderr.splitlines() if line.startswith("bench: ")]
    if ended.returncode == 1 and not refusals:
        return Outcome("other", f"exit code 1 without a reason; {last_line(ended)}")
    return None
