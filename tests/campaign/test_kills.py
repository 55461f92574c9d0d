"""Commands that are killed, or find a full disk, and are then repeated: see docs/faults.md."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynbatch.harness.records.files import ROOM_BYTES
from tests.support.pipelines import SPEEDUPS, build_experiment, command, write_conf
from tests.support.sandbox import (
    LIMIT_S,
    LOG,
    Ended,
    Kept,
    Sandbox,
    assert_ended,
    assert_kept,
    assert_no_survivors,
    assert_nothing_left,
    assert_one_line,
    campaign,
    examples,
    find_simultaneous,
    logged_sweep,
    run_module,
    sandbox,
    wait_until,
)

SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
# Allowed exit codes of a command; 0 if it completed before the signal.
EXIT_CODES = {"SIGKILL": (-9, 0), "SIGTERM": (143, 0), "SIGINT": (130, 0)}
MOMENTS = ("worker_starts", "record_written", "any")
SWEEP_S, PIPELINE_S = 8.0, 14.0  # approximate durations
ENDS_S = 30.0  # time limit for ending after a signal
WORKER = "dynbatch.harness.measuring.worker"

Line = Callable[[Sandbox], list[str]]  # the command


@dataclass(frozen=True, slots=True)
class Kill:
    """Signal at the n-th moment of a kind or after a time, with or without immediate repetition."""

    signal: str
    moment: str
    nth: int = 1
    after_s: float = 0.0
    is_repeated_at_once: bool = False

    def send(self, line: Sequence[str], box: Sandbox) -> Ended:
        """Start a command, wait for the moment, and send the signal."""
        process = box.start(line)
        workers: set[int] = set()
        moments: dict[str, Callable[[], bool]] = {
            # Not earlier: signals during Python's own start are not tested.
            "any": box.results.exists,
            "worker_starts": lambda: self.nth <= len(_find_workers(process.pid, workers)),
            "record_written": lambda: len(list(box.results.glob("raw/*/*r*.json*"))) >= self.nth,
        }
        wait_until(moments[self.moment], process=process)
        wait_until(lambda: False, self.after_s, process)
        number = signal.Signals[self.signal]
        with suppress(ProcessLookupError):
            if number == signal.SIGINT:  # Ctrl-C signals the whole foreground group
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
        return box.wait(process, ENDS_S)


def _find_workers(pid: int, known: set[int]) -> set[int]:
    """Add the measuring processes of a command to the known ones."""
    with suppress(psutil.Error):
        for child in psutil.Process(pid).children():
            with suppress(psutil.Error):
                if WORKER in child.cmdline():
                    known.add(child.pid)
    return known


def kill_and_repeat(
    line: Line, kill: Kill, box: Sandbox, expected: Sequence[str], limit_s: float = LIMIT_S
) -> None:
    """Kill `bench`, check the remaining files and processes, and run the same command again."""
    ended = kill.send(line(box), box)
    is_reported = kill.signal != "SIGKILL"
    assert_ended(ended, EXIT_CODES[kill.signal])
    if is_reported and ended.returncode:
        assert_one_line(ended, "bench")
    if not kill.is_repeated_at_once:
        assert_no_orphans(box)
        # After a kill -9, only the next run can remove temporary files.
        if is_reported:
            assert_nothing_left(box)
    before = Kept.of(box.results)
    again = box.run(line(box), limit_s)
    assert_kept(box.results, before)
    assert find_simultaneous(box.folder / LOG) is None
    assert_nothing_left(box, temporary=is_reported)
    assert_ended(again, (0,))
    assert_kept(box.results, before, expected)


def assert_no_orphans(box: Sandbox) -> None:
    """Fail if processes survive, or continue to measure before they end by themselves."""
    log = box.folder / LOG
    before = log.read_text() if log.exists() else ""
    assert_no_survivors(box)
    assert (log.read_text() if log.exists() else "") == before, "a worker measured on"


@campaign
@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("moment", MOMENTS)
@examples(1, 5)
@given(nth=st.integers(1, 3), share=st.floats(0, 1), is_repeated_at_once=st.booleans())
def test_bench(
    cache: Path,
    sweep_records: list[str],
    name: str,
    moment: str,
    nth: int,
    share: float,
    is_repeated_at_once: bool,
) -> None:
    after_s = share * (SWEEP_S if moment == "any" else 0.3)
    with sandbox(cache) as box:
        kill = Kill(name, moment, nth, after_s, is_repeated_at_once)
        kill_and_repeat(logged_sweep, kill, box, sweep_records)


@pytest.fixture(scope="module")
def pipeline_records(cache: Path) -> list[str]:
    """Return the records of an undisturbed pipeline."""
    with sandbox(cache) as box:
        write_conf(box.folder, small_table=build_experiment(SPEEDUPS))
        assert_ended(box.run(pipeline()), (0,))
        return list(Kept.of(box.results).complete)


def pipeline() -> list[str]:
    return command("draw_small_table")


@campaign
@pytest.mark.parametrize("name", SIGNALS)
@examples(1, 4)
@given(share=st.floats(0, 1))
def test_the_pipeline(cache: Path, pipeline_records: list[str], name: str, share: float) -> None:
    with sandbox(cache) as box:
        write_conf(box.folder, small_table=build_experiment(SPEEDUPS))
        # The output and the exit code are Snakemake's.
        ended = Kill(name, "any", after_s=share * PIPELINE_S).send(pipeline(), box)
        assert ended.returncode is not None, "hang"
        before = Kept.of(box.results)
        again = box.run(pipeline())
        assert_kept(box.results, before)
        assert_nothing_left(box, temporary=False)
        assert_ended(again, (0,))
        assert_kept(box.results, before, pipeline_records)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("none", ""),
        ("lost", "lost: a/r0.json"),
        ("missing", "missing"),
        ("measured_twice", "measured twice: a/r0.json"),
        ("set_aside", "measured twice, and the first set aside"),
        ("two_at_once", "is None"),
        ("leftover", "processes live on"),
        ("half_written", "files are left"),
        ("traceback", "stack: ValueError: odd"),
        ("fails", "exit code 2"),
        ("hang", "hang"),
    ],
)
def test_a_sabotaged_command_is_seen(fault: str, words: str) -> None:
    def line(box: Sandbox) -> list[str]:
        return run_module("tests.support.odd_bench", str(box.results), fault)

    seen = ""
    name = "SIGTERM" if fault == "none" else "SIGKILL"
    with sandbox(grace_s=0.2) as box:
        try:
            records = ["a/r0.json", "b/r0.json"]
            kill_and_repeat(line, Kill(name, "record_written"), box, records, limit_s=3)
        except AssertionError as error:
            seen = str(error)
        assert box.processes() == []
    assert bool(seen) == bool(words), seen
    assert words in seen


@pytest.mark.slow
def test_a_worker_that_measures_on_without_its_parent_is_seen() -> None:
    with sandbox(grace_s=30) as box:
        box.run(run_module("tests.support.odd_bench", str(box.results), "orphan"))
        with pytest.raises(AssertionError, match="a worker measured on"):
            assert_no_orphans(box)
        assert_no_orphans(box)


# --- full disks ---

DISK_BYTES = 8 * 2**20


def assert_goes_on(box: Sandbox, first: Ended, before: Kept, sweep_records: list[str]) -> None:
    """Fail unless a command ended as required and completes now that there is space."""
    (box.folder / LOG).unlink(missing_ok=True)
    assert_ended(first, (0, 1))
    if first.returncode == 1:
        lines = [line for line in first.stderr.splitlines() if line.startswith("bench: ")]
        assert lines, f"exit code 1 without a reason; {first.last_line}"
    assert_nothing_left(box)
    assert_ended(box.run(logged_sweep(box)), (0,))
    assert_kept(box.results, before, sweep_records)
    assert_nothing_left(box)


@contextmanager
def small_disk(folder: Path, n_free: int) -> Iterator[Path]:
    """Mount a tmpfs; yield the file that fills it except for a few pages."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        (folder / ".ballast").write_bytes(b"\0" * (DISK_BYTES - n_free))
        yield folder / ".ballast"
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)


def fill_disk(cache: Path, sweep_records: list[str], disk: str, n_free: int) -> tuple[Ended, Kept]:
    """Run a sweep on a nearly full disk and again with space; return what the first run left."""
    with sandbox(None if disk == "cache" else cache) as box:
        folder = box.cache if disk == "cache" else box.folder / disk
        with small_disk(folder, n_free) as ballast:
            first = box.run(logged_sweep(box))
            before = Kept.of(box.results)
            ballast.unlink()
            assert_goes_on(box, first, before, sweep_records)
            box.end_all()
    return first, before


@campaign
@pytest.mark.parametrize("disk", ["results", "tmp", "cache"])
@examples(1, 3)
@given(n_pages=st.integers(0, 12))  # free pages on a tmpfs
def test_a_full_disk(cache: Path, sweep_records: list[str], disk: str, n_pages: int) -> None:
    fill_disk(cache, sweep_records, disk, 4096 * n_pages)


@pytest.mark.slow
def test_a_disk_that_is_full_after_some_records(cache: Path) -> None:
    first, before = fill_disk(cache, [], "results", ROOM_BYTES + 3 * 4096)
    assert first.stderr.count("No space left on device") == 1
    assert 0 < len(before.complete) < 4  # records of the sweep


@campaign
@pytest.mark.parametrize("target", [">&-", ">/dev/full"])
def test_standard_output(cache: Path, sweep_records: list[str], target: str) -> None:
    with sandbox(cache) as box:
        first = box.run(["sh", "-c", f'exec "$@" {target}', "sh", *logged_sweep(box)])
        assert_goes_on(box, first, Kept.of(box.results), sweep_records)
