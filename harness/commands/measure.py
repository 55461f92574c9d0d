"""Measures one round of a trial that was planned before: what the pipeline calls for each.

    python -m harness.commands.measure SPEC --round 0 --out RECORD.json --log FILE

SPEC: the trial as JSON. `bench` composes the same from what is typed, which takes as long as
measuring a short trial; a record tells the `bench` command either way.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from harness.errors import BenchError
from harness.terminal.measurement import Measurement, complain, measure_all
from harness.trials.spec import TrialSpec

USAGE, INTERRUPTED = 1, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when there is a record, 1 where the trial is refused."""
    parser = ArgumentParser(prog="measure", description=__doc__)
    parser.add_argument("spec", type=json.loads)
    parser.add_argument("--round", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    given = parser.parse_args(arguments)
    try:
        spec = TrialSpec.from_dict(given.spec).with_round(given.round)
        one = Measurement(spec, given.out, given.log, force=False, records_bad_data=True)
        return 0 if measure_all([one]) else USAGE
    except BenchError as error:
        complain(error)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
