"""Measures what was planned, one trial's round after the other, and says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import BenchError, OutputError
from harness.machine.facts import describe_machine
from harness.measuring.launch import record_unmeasured, run_tracer, run_worker
from harness.measuring.turns import turns
from harness.planning.nodes import Nodes
from harness.planning.screening import Field, why_called_off
from harness.records.output_paths import check_room
from harness.records.record import Record, find_record
from harness.records.watched_folders import WatchedFolders
from harness.terminal.ending import FAILED, USAGE, complain
from harness.terminal.reporting import Reporter, outcome_words, summary, totals
from harness.terminal.telling_apart import words_of_all
from harness.trials.sources import source_sha256
from harness.trials.spec import TrialSpec

# What is recorded, but says that a system is at fault, and not the machine or its limits.
FAULTY = frozenset({"crash", "wrong_result"})

Closing = Callable[[Sequence[Record]], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One trial's round to be measured, and where its record goes.

    results_dir: the folder that runs take turns on. nodes: what the machine has to be; None: any.
    trace: where a timeline goes, if one is wanted. field: those that it is screened with.
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
        """Where room for the record is looked for: that of all records, or that of `out`."""
        is_own = self.path.parent.name == self.spec.trial_id  # made when the record is written
        return self.path.parent.parent if is_own else self.path.parent


def _nothing_more(_: Sequence[Record]) -> Iterable[str]:
    return ()


def in_turn(planned: Sequence[Measurement], who: str) -> AbstractContextManager[None]:
    """Be the only one that measures into these folders; who: the command, for those who wait.

    Raises BenchError where another run does not end in time.
    """
    return turns({one.results_dir for one in planned}, who, complain)


def measure_all(planned: Sequence[Measurement], closing: Closing = _nothing_more) -> int:
    """Measure what has no valid record yet, and return the exit code.

    USAGE where a trial was refused; else FAILED where one crashed or its result is wrong; else 0.

    A trial that fails does not stop the others. closing: what else is said of all records. Raises
    OutputError where a record cannot be kept, since those of the trials behind it could not be.
    """
    records: list[Record] = []
    n_kept = n_refused = 0
    with (
        _counting_what_is_kept(planned),
        Reporter(len(planned)) as reporter,
        WatchedFolders() as folders,
    ):
        for one, words in zip(planned, words_of_all([one.spec for one in planned]), strict=True):
            reporter.starts(words)
            try:
                folders.check(one.folder)
                record, kept = measure_or_keep(one, reporter.says)
                folders.check(one.folder)
            except OutputError:
                reporter.ends(f"{words}  not kept")
                raise
            except BenchError as error:
                n_refused += 1
                reporter.ends(f"{words}  refused")
                complain(error)
                continue
            records.append(record)
            n_kept += kept
            reporter.ends(f"{words}  {'kept: ' if kept else ''}{outcome_words(record)}")
            if one.trace is not None:
                n_refused += not _is_traced(one, one.trace, record)
    for words in closing(records):
        print(words)
    if len(planned) == 1 and records:
        print(summary(records[0], planned[0].path))
    elif len(planned) > 1:
        print(totals([record.status for record in records], n_kept, n_refused))
    if n_refused:
        return USAGE
    return FAILED if any(record.status in FAULTY for record in records) else 0


def _is_traced(one: Measurement, trace: Path, record: Record) -> bool:
    """Make the timeline of a trial that has its record; says in one line why there is none."""
    try:
        if record.status != "ok":
            raise BenchError(f"trace={trace} is not written: the trial is {record.status}")
        run_tracer(one.spec, trace, one.log)
    except BenchError as error:
        complain(error)
        return False
    print(f"timeline: {trace} (open it in ui.perfetto.dev)")
    return True


@contextmanager
def _counting_what_is_kept(planned: Sequence[Measurement]) -> Iterator[None]:
    """Have an interruption say how many records are there; they are whole or not there at all."""
    try:
        yield
    except KeyboardInterrupt as stop:
        n_there = sum(one.path.exists() for one in planned)
        stop.add_note(f"{n_there} of {len(planned)} records are kept")
        raise


def measure_or_keep(
    one: Measurement, hear: Callable[[str], None] = lambda words: None
) -> tuple[Record, bool]:
    """Return the record of a measurement, and whether it was there already.

    hear: takes what is told of a measurement while it goes on.

    Raises OutputError, before anything is measured, where there is no room for it.
    """
    if not one.force:
        record = find_record(one.path)
        if record is not None and record.answers(one.spec, source_sha256(one.spec)):
            if record.status != "crash":
                one.log.unlink(missing_ok=True)  # of a run that was killed behind its record
            return record, True
    check_room(one.folder)
    fault = None if one.nodes is None else one.nodes.why_not(describe_machine())
    if fault is not None:
        return record_unmeasured(one.spec, one.path, "other_machine", fault), False
    why = why_called_off(one.field, one.spec.round, one.results_dir)
    if why is not None:
        return record_unmeasured(one.spec, one.path, "called_off", why), False
    keeps = one.records_bad_data
    return run_worker(one.spec, one.path, one.log, records_bad_data=keeps, hear=hear), False
