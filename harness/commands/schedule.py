"""`bench-schedule`: how many batches each policy makes of one mini-batch, and how fast it is."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from harness.argument_parser import OneLineParser
from harness.counting import ENOUGH_S, BatchCounts, Graphs, Scheduler, count_batches, scheduler
from harness.errors import BenchError, ConfigError
from harness.policies import is_learned
from harness.schedule_request import Request, Source
from harness.schedule_sweep import parse_requests, row_of, write_rows

PICTURES = (".pdf", ".png", ".svg")
HEADERS = {
    "n_vertices": "vertices",
    "n_batches": "batches",
    "lower_bound": "bound",
    "n_nodes_ed": "nodes (ED)",
    "n_batches_ed": "batches (ED)",
    "lower_bound_ed": "bound (ED)",
}
LEARNED_HEADERS = ("learn (s)", "unseen (%)")
FOLLOWING_HEADERS = ("ratio after", "unseen after (%)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code (1 after a printed line for an error of the user)."""
    try:
        flags = _parser().parse_args(arguments)
        requests = parse_requests(flags.settings)
        _refuse_files_of_many(requests, flags)
        counted = [(request, *_count(request, flags)) for request in requests]
        rows = [row_of(request, row) for request, counts, _ in counted for row in counts]
        if requests[0].out is not None:
            write_rows(requests[0].out, rows)
    except BenchError as error:
        print(f"bench-schedule: {error}", file=sys.stderr)
        return 1
    if flags.json:
        print(json.dumps(rows, indent=2))
        return 0
    parts = []
    for request, counts, schedulers in counted:
        parts += [request.title, "\n".join(_table(counts))]
        if flags.show_policy:
            parts += [one.learned.describe() for one in schedulers if one.learned is not None]
    print("\n\n".join(parts))
    return 0


def _refuse_files_of_many(requests: Sequence[Request], flags: argparse.Namespace) -> None:
    files = {"--draw": flags.draw, "--draw-policy": flags.draw_policy}
    files["save_policy"] = requests[0].save_policy
    for name, file in files.items():
        if file is not None and len(requests) > 1:
            raise ConfigError(
                f"{name} takes one mini-batch, but {len(requests)} are given; leave out the commas"
            )


def _count(
    request: Request, flags: argparse.Namespace
) -> tuple[list[BatchCounts], list[Scheduler]]:
    """Learn, draw, save and count; pictures come first, as counting takes time."""
    graph_picture = _drawing_for("draw_graph", flags.draw)
    machine_picture = _drawing_for("draw_state_machine", flags.draw_policy)
    if flags.show_policy and flags.json:
        raise ConfigError("--show-policy prints text and --json does not; leave one of them out")
    if flags.draw_policy is not None:
        request.the_learned_policy("--draw-policy")
    source = Source(request)
    graphs = source.at(request.offset)
    schedulers = _schedulers(request, source, graphs)
    if graph_picture is not None:
        schedules = {one.name: one.plain(graphs.plain) for one in schedulers}
        graph_picture.draw_schedules(graphs.plain, schedules, flags.draw, request.title)
    for one in schedulers:
        if one.learned is not None and machine_picture is not None:
            machine_picture.draw_machine(one.learned, graphs.plain, flags.draw_policy)
        if one.learned is not None and request.save_policy is not None:
            one.learned.save(request.save_policy)
    following = source.following()
    enough_s = min(ENOUGH_S, request.spec.timing.min_seconds)
    return [count_batches(one, graphs, following, enough_s) for one in schedulers], schedulers


def _schedulers(request: Request, source: Source, graphs: Graphs) -> list[Scheduler]:
    learns = any(is_learned(name) for name in request.policies)
    elsewhere = learns and request.learn_offset != request.offset
    train = source.at(request.learn_offset) if elsewhere else graphs
    return [
        scheduler(name, request.spec.learning, request.workload, train)
        for name in dict.fromkeys(request.policies)
    ]


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="bench-schedule",
        description=__doc__,
        epilog="Columns with (ED) count the graph that ED-Batch's release makes of the mini-batch,"
        " get and parameter nodes included. Learned policies learn on the mini-batch itself, or on"
        " that of learn_offset, once for each of both graphs; a saved policy is that of the first."
        " With n_following=N, --json adds `following` and `following_ed`: n_batches and lower_bound"
        " of the next N mini-batches (the file starts anew where it ends), the mean ratio, and the"
        " share of decisions in states that learning never met.",
    )
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="key=value",
        help="model, dataset, split, batch_size, hidden_size and all other keys of `bench`"
        " (learning.variant, learning.file=FILE, ...); also"
        " policy=A,B (all), offset=N (0: the first N instances of the file's order are skipped),"
        " granularity=vertex|operator (vertex), outputs=vertices|stage (vertices: classifier and"
        " losses are vertices that the policy batches), learn_offset=N (offset),"
        " n_following=N (0), save_policy=FILE, out=FILE (rows as JSON). Commas in model, dataset,"
        " split, batch_size and granularity count every combination; models meet data sets of their"
        " kind",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list, not a table")
    parser.add_argument(
        "--show-policy", action="store_true", help="print the states and choices that were learned"
    )
    pictures = ", ".join(PICTURES)
    parser.add_argument(
        "--draw", type=Path, metavar="FILE", help=f"draw the batched graph ({pictures})"
    )
    parser.add_argument(
        "--draw-policy", type=Path, metavar="FILE", help=f"draw a learned policy ({pictures})"
    )
    return parser


def _drawing_for(module: str, picture: Path | None) -> ModuleType | None:
    """Return the module that draws; only a picture needs matplotlib, which may not be installed."""
    if picture is None:
        return None
    flag = "--draw" if module == "draw_graph" else "--draw-policy"
    if picture.suffix not in PICTURES:
        raise ConfigError(f"{flag} {picture}: no such format; end it in {', '.join(PICTURES)}")
    try:
        return importlib.import_module(f"plots.{module}")
    except ModuleNotFoundError as error:
        raise ConfigError(f"{flag} needs {error.name}; install the extra `plots`") from None


def _table(counts: Sequence[BatchCounts]) -> list[str]:
    """Align one line a policy, times in milliseconds; columns that no policy fills are left out."""
    rows = [["policy", *HEADERS.values(), "schedule (ms)", *LEARNED_HEADERS, *FOLLOWING_HEADERS]]
    for row in counts:
        after = row.following
        rows.append(
            [
                row.policy,
                *(str(getattr(row, name)) for name in HEADERS),
                f"{row.schedule_s * 1e3:.3f}",
                _shown(row.learn_s, "{:.3f}"),
                _shown(row.unseen_share, "{:.2%}"),
                _shown(None if after is None else after.ratio, "{:.3f}"),
                _shown(None if after is None else after.unseen_share, "{:.2%}"),
            ]
        )
    columns = [c for c in zip(*rows, strict=True) if any(c[1:])]
    widths = [max(map(len, column)) for column in columns]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in zip(*columns, strict=True)
    ]


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value).rstrip("%")


if __name__ == "__main__":
    sys.exit(main())
