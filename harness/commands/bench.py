"""`bench`: measure one trial, a sweep (-m), or the grid of a paper artefact (experiment=NAME)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import partial

from harness.planning.admit import admit
from harness.planning.pipeline_keys import KEYS
from harness.records.beside import seen_together
from harness.records.record import Record
from harness.terminal.command_line import Job, parse, plan
from harness.terminal.ending import run_command, tell
from harness.terminal.experiment_words import opening
from harness.terminal.measurement import in_turn, measure_all
from harness.values.places import CONF_DIR
from plots.numbers.presentation import read_presentation
from plots.numbers.series import SYSTEMS
from plots.words import best_peers, ranking


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when every trial left a record, 1 for wrong input, 2 for a fault of the harness.

    And 3 where every trial left a record, but one crashed or its result is wrong.
    """
    typed = sys.argv[1:] if arguments is None else list(arguments)
    return run_command("bench", partial(_bench, typed), typed)


def _bench(typed: Sequence[str]) -> int:
    jobs = parse(typed)
    planned = plan(jobs, typed)
    for one in planned:
        admit(one.spec)
    for words in opening(jobs, planned):
        tell(f"bench: {words}")
    with in_turn(planned, shlex.join(["bench", *typed])):
        return measure_all(planned, partial(comparison, jobs=jobs))


def comparison(records: Sequence[Record], jobs: Sequence[Job]) -> Iterator[str]:
    """Experiments that compare systems: the best peer, the ceiling; without one: a ranking."""
    experiments = {job.experiment for job in jobs if job.experiment}
    records = [one for one in seen_together(records) if one is not None]
    if not experiments:
        yield from ranking.lines_of(records)
    compared = (read_presentation(n, CONF_DIR).compare.get(SYSTEMS) for n in sorted(experiments))
    bases = [systems[0] for systems in compared if systems]
    for base in dict.fromkeys(bases):
        yield from best_peers.lines_of(records, base, CONF_DIR)
    yield from drawings(jobs)


def drawings(jobs: Sequence[Job]) -> Iterator[str]:
    """The command that makes the table or figure of each experiment from the records."""
    for job in jobs:
        if job.experiment is not None:
            keys = [one for one in job.overrides if one.partition("=")[0] in KEYS]
            config = f" --config {shlex.join(keys)}" if keys else ""
            yield f"draw it: snakemake draw_{job.experiment}{config}"


if __name__ == "__main__":
    sys.exit(main())
