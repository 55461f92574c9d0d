"""`bench-schedule`: counts the batches of each policy on one mini-batch, and times the policy."""

from __future__ import annotations

import argparse
import importlib
import json
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

from dynbatch.harness.contracts.policy import is_learned, load_policy
from dynbatch.harness.counts.request import GraphSource, PlannedCount, Request, parse_requests
from dynbatch.harness.counts.sequential import count_in_turn, plan_policy_counts
from dynbatch.harness.counts.worker import CountOutcome
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.measuring.processes.results_lock import lock_results_dirs
from dynbatch.harness.policies.fsm.machine import is_saved_policy
from dynbatch.harness.policies.parts.segments import schedule_in_segments
from dynbatch.harness.records.count_row import AnyCount, CountRow, are_count_rows, write_count_rows
from dynbatch.harness.records.files import Output, check_writable
from dynbatch.harness.terminal.exit_handling import (
    EXIT_TRIAL_FAILED,
    EXIT_USAGE,
    OneLineParser,
    make_command,
    print_error,
    print_message,
)
from dynbatch.harness.terminal.measurement import FAULTY
from dynbatch.harness.terminal.reporting import format_totals

PICTURES = (".pdf", ".png", ".svg")
NAME = "bench-schedule"
Counted = list[tuple[PlannedCount, CountOutcome]]


def _is_picture(content: bytes) -> bool:
    return content.startswith((b"\x89PNG", b"%PDF")) or b"<svg" in content[:2000]


# Only the directory of the rows is created if missing.
ROWS = Output("out=", "a list of counts", are_count_rows, (".json", ".csv"))
POLICY = Output("save_policy=", "a saved policy", is_saved_policy, makes_folder=False)
GRAPH = Output("--draw ", "a picture", _is_picture, makes_folder=False)
MACHINE = Output("--draw-policy ", "a picture", _is_picture, makes_folder=False)


@make_command(NAME)
def main(typed: list[str]) -> int:
    """Run `bench-schedule`.

    Returns:
        0 if every count succeeded, 1 for wrong input, 2 for an internal error, and 3 if a policy
        failed; its row has the status.
    """
    flags = _build_parser().parse_mixed(typed, "settings")
    requests = parse_requests(flags.settings)
    _check_flags(requests, flags)
    counted = _count(requests, flags, shlex.join([NAME, *typed]))
    _draw_and_save(counted, flags)
    rows = [outcome.row for _, outcome in counted if outcome.row is not None]
    if rows:
        _write_and_print(counted, rows, flags)
    refusals = dict.fromkeys(
        outcome.refusal for _, outcome in counted if outcome.refusal is not None
    )
    for refusal in refusals:
        print_error(refusal, NAME)
    if refusals:
        return EXIT_USAGE
    return EXIT_TRIAL_FAILED if any(row.status in FAULTY for row in rows) else 0


def _check_flags(requests: Sequence[Request], flags: argparse.Namespace) -> None:
    request = requests[0]
    files = {ROWS: request.out, POLICY: request.save_policy}
    files |= {GRAPH: flags.draw, MACHINE: flags.draw_policy}
    for output in (GRAPH, MACHINE, POLICY):
        if files[output] is not None and len(requests) > 1:
            raise ConfigError(
                f"{output.given_as.rstrip(' =')} expects one mini-batch, got {len(requests)};"
                " remove the commas"
            )
    if flags.show_policy and flags.json:
        raise ConfigError("--show-policy and --json exclude each other; remove one")
    policies = request.policies
    if flags.show_policy and not any(is_learned(name) for name in policies):
        raise ConfigError(
            f"--show-policy needs a learned policy, got policy={','.join(policies)};"
            " add one, such as fsm_sort"
        )
    for output, path in files.items():
        if path is not None:
            output.check(path)
    if flags.draw_policy is not None:
        request.select_learned_policy("--draw-policy")
        _import_drawing("state_machine", flags.draw_policy)
    if flags.draw is not None:  # before counting, which takes time
        drawing = _import_drawing("graph", flags.draw)
        drawing.check_drawable(GraphSource(request).build_at(request.offset).plain)


def _find_results_dirs(records: Path | None) -> list[Path]:
    """Return the directories to lock; a pipeline's counts are in raw/counts of the results."""
    if records is None:
        return []
    is_of_pipeline = records.parts[-2:] == ("raw", "counts")
    return [records.parent.parent if is_of_pipeline else records]


def _count(requests: Sequence[Request], flags: argparse.Namespace, holder: str) -> Counted:
    """Count batches without a record; learn again if the learned policy is needed."""
    planned, first = plan_policy_counts(requests), requests[0]
    shows = flags.show_policy or flags.draw is not None or flags.draw_policy is not None
    if first.records is not None:
        check_writable(first.records, "records")
    wants_learned = shows or first.save_policy is not None
    # Timed counts need an exclusive lock.
    is_timed = any(item.spec.timing.min_seconds > 0 for item in requests)
    notify = partial(print_error, name=NAME)
    repeat = wants_learned or first.force
    with lock_results_dirs(_find_results_dirs(first.records), holder, notify, alone=is_timed):
        outcomes, n_kept = count_in_turn(
            planned, first.records, repeat=repeat, wants_learned=wants_learned
        )
    if first.records is not None:
        statuses = [item.row.status for item in outcomes if item.row is not None]
        print_message(format_totals(statuses, n_kept, len(outcomes) - len(statuses)))
    return list(zip(planned, outcomes, strict=True))


def _draw_and_save(counted: Counted, flags: argparse.Namespace) -> None:
    """Draw and save the policies as requested; the picture omits policies that failed."""
    request = counted[0][0].request
    good = {p.policy: o.learned for p, o in counted if o.row is not None and o.row.status == "ok"}
    the_learned = next((policy for policy in good.values() if policy is not None), None)
    if request.save_policy is not None and the_learned is not None:
        the_learned.save(request.save_policy)
    if not good or (flags.draw is None and flags.draw_policy is None):
        return
    graph = GraphSource(request).build_at(request.offset).plain
    if flags.draw is not None:
        policies = {name: learned or load_policy(name) for name, learned in good.items()}
        schedules = {name: schedule_in_segments(policy, graph) for name, policy in policies.items()}
        drawing = _import_drawing("graph", flags.draw)
        figure = drawing.draw_schedules(graph, schedules, "Batches by policy", request.title)
        _save_figure(figure, flags.draw)
    if flags.draw_policy is not None and the_learned is not None:
        drawing = _import_drawing("state_machine", flags.draw_policy)
        figure = drawing.draw_machine(the_learned, graph, "Learned state machine")
        _save_figure(figure, flags.draw_policy)


def _write_and_print(counted: Counted, rows: Sequence[AnyCount], flags: argparse.Namespace) -> None:
    """Write the rows to a file, and print them as JSON or as one table per mini-batch."""
    out = counted[0][0].request.out
    if out is not None:
        write_count_rows(out, rows)
    if flags.json:
        print(json.dumps([row.to_dict() for row in rows], indent=2))
    else:
        print("\n\n".join(_format_parts(counted, show_policy=flags.show_policy)))


def _format_parts(counted: Counted, *, show_policy: bool) -> list[str]:
    """Return the title and table of each mini-batch, and the learned policies if requested."""
    parts: list[str] = []
    for title, group in groupby(counted, lambda pair: pair[0].request.title):
        outcomes = [outcome for _, outcome in group]
        rows = [outcome.row for outcome in outcomes if outcome.row is not None]
        if rows:
            parts += [title, format_table(rows)]
        if rows and show_policy:
            parts += [item.learned.describe() for item in outcomes if item.learned is not None]
    return [*parts, LEGEND] if parts else []


def _build_parser() -> OneLineParser:
    parser = OneLineParser(
        prog=NAME,
        description=__doc__,
        epilog="Columns with (ED) count the graph that ED-Batch's released code builds for the"
        " mini-batch, including get and parameter nodes. Learned policies learn on the mini-batch"
        " itself, or on that of learn_offset, once for each of the two graphs. The policy of the"
        " first graph is saved; a saved policy is used for both graphs, or is unsupported if (ED)"
        " has other types. A failed policy has its status in place of a number."
        " With n_following=N, --json adds `following` and `following_ed`: n_batches and lower_bound"
        " of the next N mini-batches (after its end, the file starts again, unless"
        " timing.last=keep), the mean ratio, and the fraction of decisions in states"
        " that did not occur during learning.",
    )
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="key=value",
        help="model, dataset, split, batch_size, hidden_size and all other keys of `bench`"
        " (learning.variant, learning.file=FILE, ...); also"
        " policy=A,B (all), offset=N (0; skips the first N instances of the file),"
        " granularity=vertex|operator (vertex), outputs=vertices|stage (vertices: the policy also"
        " batches classifier and losses), learn_offset=N (offset),"
        " n_following=N (0), save_policy=FILE, out=FILE.json (rows), records=DIRECTORY (records of"
        " counts; valid ones are reused unless force=true). Commas in"
        " model, dataset, split, batch_size, granularity and learning.seed count every combination"
        " of models and datasets of the same kind",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list, not a table")
    parser.add_argument(
        "--show-policy", action="store_true", help="print learned states and choices"
    )
    pictures = ", ".join(PICTURES)
    parser.add_argument(
        "--draw", type=Path, metavar="FILE", help=f"draw the batched graph ({pictures})"
    )
    parser.add_argument(
        "--draw-policy", type=Path, metavar="FILE", help=f"draw a learned policy ({pictures})"
    )
    return parser


def _import_drawing(module: str, picture: Path) -> ModuleType:
    """Import the module that draws; only then is matplotlib needed, which is optional."""
    flag = "--draw" if module == "graph" else "--draw-policy"
    if picture.suffix not in PICTURES:
        raise ConfigError(f"{flag} {picture}: unknown format; choose one of {', '.join(PICTURES)}")
    try:
        return importlib.import_module(f"dynbatch.plots.figures.{module}")
    except ModuleNotFoundError as error:
        raise ConfigError(f"{flag} needs {error.name}; install the extra `plots`") from None


def _save_figure(figure: Any, path: Path) -> None:
    importlib.import_module("dynbatch.plots.write").save_figure(figure, path)


LEGEND = "bound: lower bound on batches; (ED): on the graph that ED-Batch's release builds"
HEADERS = {
    "n_vertices": "vertices",
    "n_batches": "batches",
    "lower_bound": "bound",
    "n_nodes_ed": "nodes (ED)",
    "n_batches_ed": "batches (ED)",
    "lower_bound_ed": "bound (ED)",
}


def format_table(rows: Sequence[AnyCount]) -> str:
    """Return an aligned table with one line per policy and times in milliseconds.

    Columns without any value are omitted. Below the table, each policy without counts has a line
    with the reason.
    """
    cells = [_format_cells(row) for row in rows]
    names = max(cells, key=len)  # a failed policy has few cells
    columns = [[name, *(row.get(name, "") for row in cells)] for name in names]
    columns = [column for column in columns if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in zip(*columns, strict=True)
    ]
    for row in rows:
        if not isinstance(row, CountRow):
            lines.append(f"{row.policy}: {row.status}: {row.reason}")
        elif row.reason_ed is not None:
            lines.append(f"{row.policy} (ED): {row.status_ed}: {row.reason_ed}")
    return "\n".join(lines)


def _format_cells(row: AnyCount) -> dict[str, str]:
    """Return a policy's cells by column; a failed one has its status in place of batches."""
    if not isinstance(row, CountRow):
        return {"policy": row.policy, HEADERS["n_batches"]: row.status}
    cells = {"policy": row.policy}
    for name, header in HEADERS.items():
        count = getattr(row, name)
        cells[header] = row.status_ed if count is None else str(count)
    cells["schedule (ms)"] = f"{row.schedule_s * 1e3:.3f}"
    cells["learn (s)"] = _format_value(row.learn_s, "{:.3f}")
    cells["unseen (%)"] = _format_value(row.unseen_fraction, "{:.2%}")
    if row.following is not None:
        cells["ratio after"] = f"{row.following.ratio:.3f}"
        cells["unseen after (%)"] = _format_value(row.following.unseen_fraction, "{:.2%}")
    return cells


def _format_value(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value).rstrip("%")


if __name__ == "__main__":
    sys.exit(main())
