"""Sequential measurement of planned rounds of trials, with a line of output for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import BenchError, OutputError
from harness.machine.facts import describe_machine
from harness.measuring.launch import record_unmeasured, run_tracer, run_worker
from harness.measuring.results_lock import lock_results_dirs
from harness.planning.nodes import Nodes
from harness.planning.ordering import Field, find_skip_reason
from harness.records.files import WatchedFolders, check_room
from harness.records.record import Record, find_record
from harness.records.reuse import Present
from harness.terminal.exit_handling import EXIT_TRIAL_FAILED, EXIT_USAGE, print_error
from harness.terminal.reporting import (
    Reporter,
    format_outcome,
    format_summary,
    format_totals,
    format_trials,
)
from harness.trials.spec import TrialSpec

# Statuses that a system causes, not the machine or its limits.
FAULTY = frozenset({"crash", "wrong_result"})

Closing = Callable[[Sequence[Record]], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One round of a trial to be measured, and its output files.

    Attributes:
        results_dir: directory that the run locks.
        path: path of the record.
        log: path of the worker's log.
        force: whether to measure again if there is a valid record.
        records_invalid_data: whether invalid data gives a record instead of an error.
        nodes: required kind of machine; None: any.
        trace: path of a timeline; None: none is written.
        field: competitors in screening; None: the trial is not screened.
    """

    spec: TrialSpec
    results_dir: Path
    path: Path
    log: Path
    force: bool
    records_invalid_data: bool
    nodes: Nodes | None = None
    trace: Path | None = None
    field: Field | None = None

    @property
    def folder(self) -> Path:
        """Directory to check for disk space: that of all records, or that of `path`."""
        is_own = self.path.parent.name == self.spec.trial_id  # created with the record
        return self.path.parent.parent if is_own else self.path.parent


def _add_nothing(_: Sequence[Record]) -> Iterable[str]:
    return ()


def lock_results(planned: Sequence[Measurement], holder: str) -> AbstractContextManager[None]:
    """Lock the results directories of measurements while the context lasts.

    Args:
        holder: command that messages to waiting processes name.

    Raises:
        BenchError: if another run does not end in time.
    """
    return lock_results_dirs(
        {measurement.results_dir for measurement in planned}, holder, print_error
    )


@dataclass(slots=True)
class Outcome:
    """Results of a run: records in the order of measurement, reused ones included, and errors."""

    records: list[Record] = field(default_factory=list)
    n_reused: int = 0
    refusals: list[BenchError] = field(default_factory=list)

    def refuse(self, error: BenchError) -> None:
        """Note a refused trial, and print the reason."""
        self.refusals.append(error)
        print_error(error)


def measure_all(planned: Sequence[Measurement], closing: Closing = _add_nothing) -> int:
    """Measure trials that have no valid record, print their results, and return the exit code.

    Args:
        closing: builds the lines that are printed below the trials.

    Returns:
        EXIT_USAGE if a trial was refused, else EXIT_TRIAL_FAILED if one crashed or its result is
        wrong, else 0.

    Raises:
        OutputError: if a record cannot be written.
    """
    outcome = measure_each(planned)
    for line in closing(outcome.records):
        print(line)
    n_refused = len(outcome.refusals)
    if len(planned) == 1 and outcome.records:
        print(format_summary(outcome.records[0], planned[0].path))
    elif len(planned) > 1:
        statuses = [record.status for record in outcome.records]
        print(format_totals(statuses, outcome.n_reused, n_refused))
    if n_refused:
        return EXIT_USAGE
    return EXIT_TRIAL_FAILED if any(record.status in FAULTY for record in outcome.records) else 0


def measure_each(planned: Sequence[Measurement]) -> Outcome:
    """Measure trials that have no valid record, with a line for each on standard error.

    A trial that fails does not stop the others.

    Raises:
        OutputError: if a record cannot be written, because those of later trials would fail, too.
    """
    outcome, present = Outcome(), Present()
    with (
        _add_kept_note(planned),
        Reporter(len(planned)) as reporter,
        WatchedFolders() as folders,
    ):
        for measurement, name in zip(
            planned, format_trials([measurement.spec for measurement in planned]), strict=True
        ):
            reporter.show_trial(name)
            try:
                folders.check(measurement.folder)
                record, kept = measure_or_keep(measurement, present, reporter.write_progress)
                folders.check(measurement.folder)
            except OutputError:
                reporter.write_result(f"{name}  not saved")
                raise
            except BenchError as error:
                reporter.write_result(f"{name}  refused")
                outcome.refuse(error)
                continue
            outcome.records.append(record)
            outcome.n_reused += kept
            reporter.write_result(f"{name}  {'reused: ' if kept else ''}{format_outcome(record)}")
            if measurement.trace is not None:
                _write_trace(measurement, measurement.trace, record, outcome)
    return outcome


def _write_trace(measurement: Measurement, trace: Path, record: Record, outcome: Outcome) -> None:
    """Write the timeline of a measured trial, or report the reason why there is none."""
    try:
        if record.status != "ok":
            raise BenchError(f"trace={trace} is not written: the trial is {record.status}")
        run_tracer(measurement.spec, trace, measurement.log)
    except BenchError as error:
        outcome.refuse(error)
        return
    print(f"timeline: {trace} (open it in ui.perfetto.dev)")


@contextmanager
def _add_kept_note(planned: Sequence[Measurement]) -> Iterator[None]:
    """Add the number of existing records to an interruption's message."""
    try:
        yield
    except KeyboardInterrupt as stop:
        n_there = sum(measurement.path.exists() for measurement in planned)
        stop.add_note(f"{n_there} of {len(planned)} records are saved")
        raise


def measure_or_keep(
    measurement: Measurement, present: Present, hear: Callable[[str], None] = lambda words: None
) -> tuple[Record, bool]:
    """Return the record of a measurement, and whether it was reused.

    Args:
        present: current code, data, machine and versions, which a reused record must match.
        hear: called with lines about the progress.

    Raises:
        OutputError: before the measurement, if there is no disk space for the record.
    """
    if not measurement.force:
        record = find_record(measurement.path)
        change = None if record is None else present.find_change(record, measurement.spec)
        if record is not None and present.is_kept(record, measurement.spec):
            if record.status != "crash":
                measurement.log.unlink(
                    missing_ok=True
                )  # left by a run that was killed after its record
            return record, True
        if change is not None:
            hear(f"existing record is superseded: {change}")
    check_room(measurement.folder)
    fault = (
        None
        if measurement.nodes is None
        else measurement.nodes.explain_mismatch(describe_machine())
    )
    if fault is not None:
        return record_unmeasured(
            measurement.spec, measurement.path, "machine_mismatch", fault
        ), False
    reason = find_skip_reason(measurement.field, measurement.spec.round, measurement.results_dir)
    if reason is not None:
        return record_unmeasured(measurement.spec, measurement.path, "screened_out", reason), False
    keeps = measurement.records_invalid_data
    return run_worker(
        measurement.spec, measurement.path, measurement.log, records_invalid_data=keeps, hear=hear
    ), False
