"""`bench`: measure one trial, a sweep (-m), or the grid of a paper artefact (experiment=NAME)."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Collection, Sequence

from harness.errors import BenchError
from harness.measuring.launch import run_worker
from harness.planning.admit import admit
from harness.records.record import Record, find_record, trial_of
from harness.terminal.command_line import Measurement, parse, plan
from harness.terminal.reporting import Reporter, outcome_words, summary, totals, trial_words
from harness.trials.sources import source_sha256
from harness.values.places import CONF_DIR
from plots.numbers.presentation import read_presentation
from plots.numbers.series import SYSTEMS
from plots.words.best_peers import lines_of

USAGE, FAULT, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when every trial left a record, 1 for wrong input, 2 for a fault of the harness."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    try:
        jobs = parse(typed)
        planned = plan(jobs, typed)
        for one in planned:
            admit(one.spec)
        return run(planned, {job.experiment for job in jobs if job.experiment})
    except BenchError as error:
        _complain(error)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough, as in `bench --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:
        traceback.print_exc()
        print("bench: a fault of the harness; please report the lines above", file=sys.stderr)
        return FAULT


def run(planned: Sequence[Measurement], experiments: Collection[str] = ()) -> int:
    """Measure what has no valid record yet; a trial that fails does not stop the others.

    experiments: those that were asked for; of each is said which of its peers is the best.
    """
    records: list[Record] = []
    n_kept = n_refused = 0
    with Reporter(len(planned)) as reporter:
        for one in planned:
            words = trial_words(trial_of(one.spec))
            reporter.starts(words)
            try:
                record, kept = measure_or_keep(one)
            except BenchError as error:
                n_refused += 1
                reporter.ends(f"{words}  refused")
                _complain(error)
                continue
            records.append(record)
            n_kept += kept
            reporter.ends(f"{words}  {'kept: ' if kept else ''}{outcome_words(record)}")
    for words in _best_peers(records, experiments):
        print(words)
    if len(planned) == 1 and records:
        print(summary(records[0], planned[0].path))
    elif len(planned) > 1:
        print(totals([record.status for record in records], n_kept, n_refused))
    return USAGE if n_refused else 0


def _best_peers(records: Sequence[Record], experiments: Collection[str]) -> list[str]:
    """For each experiment that compares systems, who is the best of all peers, and by how much."""
    compared = (read_presentation(n, CONF_DIR).compare.get(SYSTEMS) for n in sorted(experiments))
    bases = [systems[0] for systems in compared if systems]
    return [line for base in dict.fromkeys(bases) for line in lines_of(records, base, CONF_DIR)]


def measure_or_keep(one: Measurement) -> tuple[Record, bool]:
    """Return the record of a measurement, and whether it was there already."""
    if not one.force:
        record = find_record(one.path)
        if record is not None and record.answers(one.spec, source_sha256(one.spec)):
            return record, True
    keeps = one.records_bad_data
    return run_worker(one.spec, one.path, one.log, records_bad_data=keeps), False


def _complain(error: BenchError) -> None:
    print(f"bench: {' '.join(str(error).split())}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
