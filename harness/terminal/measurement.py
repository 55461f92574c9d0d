"""Measurement of planned rounds of trials, block by block, with a line of output for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dynbatch.harness.errors import BenchError, OutputError
from dynbatch.harness.machine.facts import describe_machine
from dynbatch.harness.measuring.block import BlockEntry, measure_block
from dynbatch.harness.measuring.processes.fork_server import ForkServers
from dynbatch.harness.measuring.processes.launch import record_unmeasured
from dynbatch.harness.measuring.processes.results_lock import lock_results_dirs
from dynbatch.harness.planning.locks import hold_used_gpu
from dynbatch.harness.planning.nodes import Nodes
from dynbatch.harness.records.files import WatchedFolders, check_room
from dynbatch.harness.records.record import LIMITED, Record, build_record_path, find_record
from dynbatch.harness.records.reuse import Present
from dynbatch.harness.terminal.exit_handling import EXIT_TRIAL_FAILED, EXIT_USAGE, print_error
from dynbatch.harness.terminal.reporting import (
    Reporter,
    format_outcome,
    format_summary,
    format_totals,
    format_trials,
)
from dynbatch.harness.trials.spec import TrialSpec

# Statuses that a system causes, not the machine or its limits.
FAULTY = frozenset({"crash", "wrong_result"})

Closing = Callable[[Sequence[Record]], Iterable[str]]
Settled = Callable[["Measurement", Record | None], None]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One round of a trial to be measured, and its output files.

    Attributes:
        results_dir: directory that the run locks.
        force: whether to measure again if there is a valid record.
        records_invalid_data: whether invalid data gives a record instead of an error.
        nodes: required kind of machine; None: any.
        unsupported: reason why this machine cannot run the trial, which is then recorded without
            starting a process; None: unknown.
    """

    spec: TrialSpec
    results_dir: Path
    path: Path
    force: bool
    records_invalid_data: bool
    nodes: Nodes | None = None
    unsupported: str | None = None

    @property
    def folder(self) -> Path:
        """Directory to check for disk space: that of all records, or that of `path`."""
        is_own = self.path.parent.name == self.spec.trial_id  # created with the record
        return self.path.parent.parent if is_own else self.path.parent

    @property
    def log(self) -> Path:
        """Output of the trial's process."""
        return self.results_dir / "logs" / f"{self.spec.trial_id}.r{self.spec.round}.log"


def lock_results(planned: Sequence[Measurement], holder: str) -> AbstractContextManager[None]:
    return lock_results_dirs(
        {measurement.results_dir for measurement in planned}, holder, print_error
    )


def measure_all(
    planned: Sequence[Measurement],
    servers: ForkServers,
    closing: Closing = lambda _: (),
    settled: Settled = lambda *_: None,
) -> int:
    """Measure trials that have no valid record, print their results, and return the exit code.

    Args:
        closing: builds the lines that are printed below the trials.
        settled: receives each measurement with its record, or None if it was refused.

    Returns:
        EXIT_USAGE if a trial was refused, else EXIT_TRIAL_FAILED if one crashed or its result is
        wrong, else 0.
    """
    run = measure_each(planned, servers, settled)
    records, n_refused = run.records, len(run.refusals)
    for line in closing(records):
        print(line)
    if len(planned) == 1 and records:
        print(format_summary(records[0], planned[0].path))
    elif len(planned) > 1:
        print(format_totals([record.status for record in records], run.n_reused, n_refused))
    if n_refused:
        return EXIT_USAGE
    return EXIT_TRIAL_FAILED if any(record.status in FAULTY for record in records) else 0


def measure_each(
    planned: Sequence[Measurement], servers: ForkServers, settled: Settled = lambda *_: None
) -> BenchRun:
    """Measure trials that have no valid record, with a line for each on standard error.

    Trials that differ only in their system are measured side by side, in one block per round. A
    trial that fails does not stop the others.

    Raises:
        OutputError: if a record cannot be written, because those of later trials would fail, too.
    """
    run = BenchRun(planned, servers, settled)
    blocks = defaultdict[tuple[Path, str, int], list[int]](list)
    for position, item in enumerate(planned):
        blocks[item.results_dir, item.spec.point, item.spec.round].append(position)
    try:
        with run.reporter, WatchedFolders() as folders:
            for block in blocks.values():
                run.measure(block, folders)
    except KeyboardInterrupt as stop:
        n_there = sum(measurement.path.exists() for measurement in planned)
        stop.add_note(f"{n_there} of {len(planned)} records are saved")
        raise
    return run


class BenchRun:
    """Measurement of planned rounds, in progress or complete.

    Attributes:
        n_reused: number of records that were valid already.
        refusals: errors of refused trials.
    """

    def __init__(
        self, planned: Sequence[Measurement], servers: ForkServers, settled: Settled
    ) -> None:
        self.planned, self.settled = planned, settled
        self.n_reused = 0
        self.refusals: list[BenchError] = []
        self.reporter = Reporter(len(planned))
        self._servers = servers
        self._records: dict[int, Record] = {}  # of settled measurements that were not refused
        self._names = format_trials([measurement.spec for measurement in planned])
        self._lines: dict[int, tuple[str, BenchError | None]] = {}
        self._present = Present()
        self._unwritten: list[int] = []  # of the current block

    @property
    def records(self) -> list[Record]:
        """Records in the order of measurement, reused ones included."""
        return [self._records[position] for position in sorted(self._records)]

    def measure(self, block: Sequence[int], folders: WatchedFolders) -> None:
        """Settle the measurements of a block: keep valid records, and measure the others."""
        missing: list[int] = []
        self._unwritten = list(block)
        for position in block:
            self.reporter.show_trial(self._names[position])
            measurement = self.planned[position]
            with self._report_errors(position):
                folders.check(measurement.folder)
                settled = find_without_measuring(
                    measurement, self._present, partial(self._write_note, position)
                )
                if settled is None:
                    missing.append(position)
                else:
                    self._settle(position, *settled)
        if not missing:
            return
        waiting = [self.planned[position] for position in missing]
        entries = [BlockEntry(m.spec, m.path, m.log, m.records_invalid_data) for m in waiting]

        def settle(number: int, result: Record | BenchError) -> None:
            position = missing[number]
            with self._report_errors(position):
                if isinstance(result, BenchError):
                    raise result
                folders.check(self.planned[position].folder)
                self._settle(position, result, kept=False)

        try:
            with self._hold_gpu(missing):
                measure_block(entries, self._servers, settle)
        except OutputError:
            for position in missing:
                if position not in self._records:
                    self.reporter.write_result(f"{self._names[position]}  not saved")
            raise

    def _hold_gpu(self, positions: Sequence[int]) -> AbstractContextManager[object]:
        """Return a lock of the GPU if a trial uses it: blocks of other runs wait for their turn."""
        first = self.planned[positions[0]]
        devices = {self.planned[k].spec.device for k in positions}
        holder = first.spec.command or first.spec.trial_id
        return hold_used_gpu(devices, first.results_dir, holder, print_error)

    def _write_note(self, position: int, text: str) -> None:
        system = self.planned[position].spec.system
        self.reporter.write_note(f"{system}: {text}")

    def _settle(self, position: int, record: Record, kept: bool) -> None:
        self._records[position] = record
        self.n_reused += kept
        self._write(position, f"{'reused: ' if kept else ''}{format_outcome(record)}")
        self.settled(self.planned[position], record)

    @contextmanager
    def _report_errors(self, position: int) -> Iterator[None]:
        """Note a refused trial; an output error ends the run."""
        try:
            yield
        except OutputError:
            raise
        except BenchError as error:
            self._write(position, "refused", error)
            self.settled(self.planned[position], None)

    def _write(self, position: int, outcome: str, error: BenchError | None = None) -> None:
        """Write the line of a measurement after those that were planned before it."""
        self._lines[position] = (f"{self._names[position]}  {outcome}", error)
        while self._unwritten and self._unwritten[0] in self._lines:
            line, refusal = self._lines.pop(self._unwritten.pop(0))
            self.reporter.write_result(line)
            if refusal is not None:
                self.refusals.append(refusal)
                print_error(refusal)


def find_without_measuring(
    measurement: Measurement, present: Present, note: Callable[[str], None]
) -> tuple[Record, bool] | None:
    """Return the record of a round that need not be measured, and whether it was reused.

    Args:
        present: current code, data, machine and versions, which a reused record must match.

    Returns:
        None if the round must be measured.

    Raises:
        OutputError: the disk has no space for the record.
    """
    spec = measurement.spec
    record = None if measurement.force else find_record(measurement.path)
    if record is not None:
        is_wanted = not _is_derived(record) or _find_limited(measurement, present) is not None
        if is_wanted and present.is_kept(record, spec):
            # Left by a run that was killed after its record.
            measurement.log.unlink(missing_ok=True)
            return record, True
        change = present.find_change(record, spec)
        if change is not None:
            note(f"existing record is superseded: {change}")
    check_room(measurement.folder)
    nodes = measurement.nodes
    fault = None if nodes is None else nodes.explain_mismatch(describe_machine())
    write = partial(record_unmeasured, spec, measurement.path)
    if fault is not None:
        return write("machine_mismatch", fault), False
    if measurement.unsupported is not None:
        return write("unsupported", measurement.unsupported, present.sources), False
    limited = None if measurement.force else _find_limited(measurement, present)
    if limited is not None:
        return write(limited.status, f"{_AS_IN} {limited.trial.round}: {limited.reason}"), False
    return None


def _find_limited(measurement: Measurement, present: Present) -> Record | None:
    """Return the record of an earlier round that reached a limit; its result needs all rounds."""
    for number in range(measurement.spec.round):
        spec = measurement.spec.replace_round(number)
        record = find_record(build_record_path(measurement.results_dir, spec.trial_id, number))
        is_own = record is not None and record.status in LIMITED and not _is_derived(record)
        if is_own and present.is_kept(record, spec):
            return record
    return None


_AS_IN = "as in round"  # first words of the reason of a round that was not measured itself


def _is_derived(record: Record) -> bool:
    return record.status in LIMITED and (record.reason or "").startswith(_AS_IN)
