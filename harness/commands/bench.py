"""`bench`: measure one trial, a sweep (-m), or the grid of a paper artefact (experiment=NAME)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import partial

from harness.planning.admit import admit
from harness.records.beside import seen_together
from harness.records.record import Record
from harness.terminal.command_line import parse, plan
from harness.terminal.ending import USAGE, run_command
from harness.terminal.measurement import in_turn, measure_all
from harness.values.places import CONF_DIR
from plots.numbers.presentation import read_presentation
from plots.numbers.series import SYSTEMS
from plots.words import best_peers, ranking


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when every trial left a record, 1 for wrong input, 2 for a fault of the harness."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    return run_command("bench", partial(_bench, typed), typed)


def _bench(typed: Sequence[str]) -> int:
    jobs = parse(typed)
    planned = plan(jobs, typed)
    for one in planned:
        admit(one.spec)
    experiments = {job.experiment for job in jobs if job.experiment}
    with in_turn(planned, shlex.join(["bench", *typed])):
        none_refused = measure_all(planned, partial(comparison, experiments=experiments))
    return 0 if none_refused else USAGE


def comparison(records: Sequence[Record], experiments: Collection[str]) -> Iterator[str]:
    """Experiments that compare systems: the best peer, the ceiling; without one: a ranking."""
    records = [one for one in seen_together(records) if one is not None]
    if not experiments:
        yield from ranking.lines_of(records)
    compared = (read_presentation(n, CONF_DIR).compare.get(SYSTEMS) for n in sorted(experiments))
    bases = [systems[0] for systems in compared if systems]
    for base in dict.fromkeys(bases):
        yield from best_peers.lines_of(records, base, CONF_DIR)


if __name__ == "__main__":
    sys.exit(main())
