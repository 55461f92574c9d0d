"""Sequential measurement of planned rounds of trials, with a line of output for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import BenchError, OutputError
from harness.machine.facts import describe_machine
from harness.measuring.launch import record_unmeasured, run_tracer, run_worker
from harness.measuring.turns import turns
from harness.planning.nodes import Nodes
from harness.planning.ordering import Field, why_called_off
from harness.records.files import WatchedFolders, check_room
from harness.records.record import Record, find_record
from harness.records.reuse import Present
from harness.terminal.ending import FAILED, USAGE, complain
from harness.terminal.reporting import Reporter, outcome_words, summary, totals, words_of_all
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
        records_bad_data: whether invalid data gives a record instead of an error.
        nodes: required kind of machine; None: any.
        trace: path of a timeline; None: none is written.
        field: competitors in screening; None: the trial is not screened.
    """

    spec: TrialSpec
    results_dir: Path
    path: Path
    log: Path
    force: bool
    records_bad_data: bool
    nodes: Nodes | None = None
    trace: Path | None = None
    field: Field | None = None

    @property
    def folder(self) -> Path:
        """Directory to check for disk space: that of all records, or that of `out`."""
        is_own = self.path.parent.name == self.spec.trial_id  # created with the record
        return self.path.parent.parent if is_own else self.path.parent


def _nothing_more(_: Sequence[Record]) -> Iterable[str]:
    return ()


def in_turn(planned: Sequence[Measurement], who: str) -> AbstractContextManager[None]:
    """Lock the results directories of measurements while the context lasts.

    Args:
        who: command that messages to waiting processes name.

    Raises:
        BenchError: if another run does not end in time.
    """
    return turns({one.results_dir for one in planned}, who, complain)


@dataclass(slots=True)
class Outcome:
    """Results of a run: records in the order of measurement, reused ones included, and errors."""

    records: list[Record] = field(default_factory=list)
    n_reused: int = 0
    refusals: list[BenchError] = field(default_factory=list)

    def refuse(self, error: BenchError) -> None:
        """Note a refused trial, and print the reason."""
        self.refusals.append(error)
        complain(error)


def measure_all(planned: Sequence[Measurement], closing: Closing = _nothing_more) -> int:
    """Measure trials that have no valid record, print their results, and return the exit code.

    Args:
        closing: builds the lines that are printed below the trials.

    Returns:
        USAGE if a trial was refused, else FAILED if one crashed or its result is wrong, else 0.

    Raises:
        OutputError: if a record cannot be written.
    """
    outcome = measure_each(planned)
    for words in closing(outcome.records):
        print(words)
    n_refused = len(outcome.refusals)
    if len(planned) == 1 and outcome.records:
        print(summary(outcome.records[0], planned[0].path))
    elif len(planned) > 1:
        statuses = [record.status for record in outcome.records]
        print(totals(statuses, outcome.n_reused, n_refused))
    if n_refused:
        return USAGE
    return FAILED if any(record.status in FAULTY for record in outcome.records) else 0


def measure_each(planned: Sequence[Measurement]) -> Outcome:
    """Measure trials that have no valid record, with a line for each on standard error.

    A trial that fails does not stop the others.

    Raises:
        OutputError: if a record cannot be written, because those of later trials would fail, too.
    """
    outcome, present = Outcome(), Present()
    with (
        _counting_what_is_kept(planned),
        Reporter(len(planned)) as reporter,
        WatchedFolders() as folders,
    ):
        for one, words in zip(planned, words_of_all([one.spec for one in planned]), strict=True):
            reporter.starts(words)
            try:
                folders.check(one.folder)
                record, kept = measure_or_keep(one, present, reporter.says)
                folders.check(one.folder)
            except OutputError:
                reporter.ends(f"{words}  not kept")
                raise
            except BenchError as error:
                reporter.ends(f"{words}  refused")
                outcome.refuse(error)
                continue
            outcome.records.append(record)
            outcome.n_reused += kept
            reporter.ends(f"{words}  {'kept: ' if kept else ''}{outcome_words(record)}")
            if one.trace is not None:
                _write_trace(one, one.trace, record, outcome)
    return outcome


def _write_trace(one: Measurement, trace: Path, record: Record, outcome: Outcome) -> None:
    """Write the timeline of a measured trial, or report the reason why there is none."""
    try:
        if record.status != "ok":
            raise BenchError(f"trace={trace} is not written: the trial is {record.status}")
        run_tracer(one.spec, trace, one.log)
    except BenchError as error:
        outcome.refuse(error)
        return
    print(f"timeline: {trace} (open it in ui.perfetto.dev)")


@contextmanager
def _counting_what_is_kept(planned: Sequence[Measurement]) -> Iterator[None]:
    """Add the number of existing records to an interruption's message."""
    try:
        yield
    except KeyboardInterrupt as stop:
        n_there = sum(one.path.exists() for one in planned)
        stop.add_note(f"{n_there} of {len(planned)} records are kept")
        raise


def measure_or_keep(
    one: Measurement, present: Present, hear: Callable[[str], None] = lambda words: None
) -> tuple[Record, bool]:
    """Return the record of a measurement, and whether it was reused.

    Args:
        present: current code, data, machine and versions, which a reused record must match.
        hear: called with lines about the progress.

    Raises:
        OutputError: before the measurement, if there is no disk space for the record.
    """
    if not one.force:
        record = find_record(one.path)
        change = None if record is None else present.find_change(record, one.spec)
        if record is not None and present.is_kept(record, one.spec):
            if record.status != "crash":
                one.log.unlink(missing_ok=True)  # left by a run that was killed after its record
            return record, True
        if change is not None:
            hear(f"the record that was there is put aside: {change}")
    check_room(one.folder)
    fault = None if one.nodes is None else one.nodes.why_not(describe_machine())
    if fault is not None:
        return record_unmeasured(one.spec, one.path, "other_machine", fault), False
    why = why_called_off(one.field, one.spec.round, one.results_dir)
    if why is not None:
        return record_unmeasured(one.spec, one.path, "called_off", why), False
    keeps = one.records_bad_data
    return run_worker(one.spec, one.path, one.log, records_bad_data=keeps, hear=hear), False
