"""`bench-compare`: compares the records of two results directories, for example of two commits.

    bench-compare BEFORE AFTER [--tolerance 0.15]

Prints a line for each trial that both have, the largest slowdown first: how many times as fast it
is in AFTER, with the range or interval over rounds, and the trial's id. Directories are as for
`dynbatch.frame`. Records of different machines, libraries or inputs are not comparable; the code of
the benchmark may differ.
"""

from __future__ import annotations

import argparse
import json
import sys

import pandas as pd

from dynbatch.harness.errors import RecordError
from dynbatch.harness.records.numbers import RATIO, numbers, ratios
from dynbatch.harness.records.tidy import frame
from dynbatch.harness.terminal.exit_handling import EXIT_TRIAL_FAILED, OneLineParser, make_command
from dynbatch.harness.values.checked import check_path_text
from dynbatch.plots.tables.cells import format_ratio

# Unchanged code differs by up to a factor of 1.17 between runs (conf/experiment/answers.yaml).
TOLERANCE = 0.15
CODE = "harness"  # shared version that may differ: the benchmark's own code
TRIAL = ("trial_id",)


@make_command("bench-compare")
def main(typed: list[str]) -> int:
    """Run `bench-compare`.

    Returns:
        0 if no trial is slower, 1 for wrong input or records, 2 for an internal error, and 3 if a
        trial is slower or has no number or record any more.
    """
    options = _build_parser().parse_args(typed)
    check_path_text("BEFORE", options.before)
    check_path_text("AFTER", options.after)
    before, after = (_read_trials(folder) for folder in (options.before, options.after))
    gains = compute_gains(before, after, options.tolerance)
    for _, gain in gains.iterrows():
        print(f"{gain.text:<28}  {gain.verdict:<10}  {gain.trial_id}")
    n_gone = len(set(before.trial_id) - set(after.trial_id))
    n_new = len(set(after.trial_id) - set(before.trial_id))
    n_worse = int(gains.verdict.isin(["slower", "failed"]).sum()) + n_gone
    print(f"{len(gains)} trials compared, {n_worse} slower or failed, {n_gone} of them gone")
    if n_new:
        print(f"{n_new} trials are only in {options.after}")
    return EXIT_TRIAL_FAILED if n_worse else 0


def _build_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="bench-compare", description=__doc__)
    parser.add_argument("before", metavar="BEFORE")
    parser.add_argument("after", metavar="AFTER")
    parser.add_argument(
        "--tolerance",
        type=_parse_tolerance,
        default=TOLERANCE,
        metavar="FRACTION",
        help="a trial is slower if its whole interval is below 1 - FRACTION (default: %(default)s)",
    )
    return parser


def _parse_tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to below 1, got {text!r}")
    return value


def _read_trials(folder: str) -> pd.DataFrame:
    """Return the rows of a directory's trials, whose code does not affect comparability."""
    rows = frame(folder)
    rows = rows[rows.kind == "trial"]
    if not len(rows):
        raise RecordError(f"{folder} has counts but no trials; choose another directory")
    facts = [
        json.dumps({key: value for key, value in json.loads(text).items() if key != CODE})
        for text in rows.group_facts
    ]
    return rows.assign(group=facts, group_facts=facts)


def compute_gains(before: pd.DataFrame, after: pd.DataFrame, tolerance: float) -> pd.DataFrame:
    """Compute the speedup of each trial that both sides have, the largest slowdown first.

    A trial without a number before is compared with nothing, and is omitted.

    Raises:
        RecordError: No trial has a number on the first side and a record on the other, or records
            are not comparable.
    """
    known = numbers(before, TRIAL)
    shared = set(known.trial_id[known.status == "ok"]) & set(after.trial_id)
    if not shared:
        raise RecordError(
            "the directories share no measured trial; measure the same trials in both"
        )
    before, after = (rows[rows.trial_id.isin(shared)] for rows in (before, after))
    gains = numbers(ratios(before, after, TRIAL), TRIAL, RATIO)
    gains["text"] = list(map(format_ratio, gains.value, gains.low, gains.high, gains.warnings))
    gains["text"] = gains.text.where(gains.status == "ok", gains.status)
    least = 1 - tolerance
    is_slower = gains.high.fillna(gains.value) < least
    is_faster = gains.low.fillna(gains.value) > 1 / least
    is_within = (gains.low >= least) & (gains.high <= 1 / least)
    gains["verdict"] = is_within.map({True: "alike", False: "unclear"})
    gains.loc[is_faster, "verdict"] = "faster"
    gains.loc[is_slower, "verdict"] = "slower"
    gains.loc[gains.status != "ok", "verdict"] = "failed"
    return gains.sort_values("value", na_position="first", kind="stable")


if __name__ == "__main__":
    sys.exit(main())
