"""`bench-collect`: converts records and counts to one CSV, or to packed files and back.

    bench-collect [PLACE ...] [--out FILE] [--latest]     # one CSV, a row per round or count
    bench-collect [PLACE ...] --pack DIRECTORY [--latest] # packed files of records and counts
    bench-collect PLACE ... --unpack RESULTS              # a results directory from packed files
    bench-collect --status [RESULTS]                      # current state of a pipeline run

A PLACE is a packed file (*.xz), a directory of packed files, a record, or a directory of records;
by default results/raw. Columns: docs/records.md. Only rows of one `group` are comparable
in one table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dynbatch.harness.errors import ConfigError, RecordError
from dynbatch.harness.machine.files import check_regular
from dynbatch.harness.records.cross_check import (
    check_builds,
    cross_check_records,
    select_latest_builds,
)
from dynbatch.harness.records.files import Output, check_writable, replace_whole
from dynbatch.harness.records.store import (
    COUNTS,
    TRIALS,
    RecordSet,
    is_packed,
    read_all_records,
    unpack,
    write_packed,
)
from dynbatch.harness.records.tidy import build_frame, is_table, to_csv
from dynbatch.harness.terminal.exit_handling import OneLineParser, make_command, print_message
from dynbatch.harness.terminal.status import tell_status
from dynbatch.harness.values.checked import check_path_text

HERE = Path("results/raw")
OUT = Output("--out ", "a table of records", is_table)
PACKED = Output("--pack ", "a packed file", is_packed)


@make_command("bench-collect")
def main(typed: list[str]) -> int:
    options = _build_parser().parse_mixed(typed, "places")
    _check_flags(options)
    _check_paths(options)
    places = options.places
    if options.out is not None:
        OUT.check(options.out)  # before reading, which takes time
    if options.status:
        tell_status(places)
    elif options.pack is not None:
        print_message(pack(read_held(places, latest=options.latest), options.pack, places))
    elif options.unpack is not None:
        print_message(_unpack(places, options.unpack))
    else:
        _write_table(read_held(places, latest=options.latest), options.out)
    return 0


def _write_table(held: RecordSet, out: Path | None) -> None:
    """Write a table, in which records that contradict others have no number."""
    table = to_csv(build_frame(cross_check_records(held.records), held.counts))
    if out is None:
        sys.stdout.write(table)
    else:
        replace_whole(out, table)


def read_held(places: Sequence[Path], *, latest: bool) -> RecordSet:
    """Read records and counts that may be in one file.

    Raises:
        RecordError: for a damaged record, for two builds of a system, and if there are no records.
    """
    held = _read_some(places)
    records = select_latest_builds(held.records) if latest else held.records
    check_builds(records)
    return RecordSet(tuple(records), held.counts)


def _read_some(places: Sequence[Path]) -> RecordSet:
    held = read_all_records(places)
    if not held:
        paths = ", ".join(map(str, places))
        raise RecordError(f"no records in {paths}; run bench first, or choose another directory")
    return held


def pack(held: RecordSet, folder: Path, places: Sequence[Path]) -> str:
    """Pack the records and counts of `places`, and return a line with their numbers.

    Raises:
        RecordError: if the directory has a packed file of a kind that the places do not have.
    """
    contents = {TRIALS.packed: held.records, COUNTS.packed: held.counts}
    for name, items in contents.items():
        if not items and (folder / name).exists():
            raise RecordError(
                f"{folder / name} exists, but {', '.join(map(str, places))} has none of its kind;"
                " delete it, or choose another directory"
            )
    for name, items in contents.items():
        if items:
            PACKED.check(folder / name)
    write_packed(held, folder)
    return f"{len(held.records)} records and {len(held.counts)} counts packed in {folder}"


def _unpack(places: Sequence[Path], folder: Path) -> str:
    held = _read_some(places)
    check_writable(folder, "--unpack")
    n_new = unpack(held, folder)
    return f"{n_new} records unpacked to {folder / 'raw'}; {len(held) - n_new} existed already"


def _check_paths(options: argparse.Namespace) -> None:
    """Check the paths of all options, and convert them to Path."""
    for flag in ("out", "pack", "unpack"):
        if (text := getattr(options, flag)) is not None:
            check_path_text(f"--{flag}", text)
            setattr(options, flag, Path(text))
    for path in options.places:
        check_path_text("PLACE", path)
    here = Path("results") if options.status else HERE
    options.places = [Path(path) for path in options.places] or [here]
    for path in (place for place in options.places if not place.is_dir()):
        try:
            check_regular(path)
        except OSError as error:
            raise RecordError(
                f"{path} cannot be read ({error.strerror}); choose a record, packed file or"
                " directory"
            ) from error


def _check_flags(options: argparse.Namespace) -> None:
    does_more = options.pack or options.unpack or options.out or options.latest
    if options.status and does_more:
        raise ConfigError("--status takes only RESULTS; remove the other arguments")
    if options.status and len(options.places) > 1:
        raise ConfigError("--status takes one results directory; remove the others")
    packs = options.pack is not None or options.unpack is not None
    if packs and options.out is not None:
        raise ConfigError("--out excludes --pack and --unpack; remove one")
    if options.unpack is not None and not options.places:
        raise ConfigError("--unpack has no input; choose a packed file or its directory")
    if options.unpack is not None and options.latest:
        raise ConfigError("--unpack excludes --latest; remove it, or use it with --pack")


def _build_parser() -> OneLineParser:
    parser = OneLineParser(
        prog="bench-collect",
        description="Records to one CSV, to packed files, or back from packed files.",
        epilog="bench-collect --pack DIRECTORY writes records.jsonl.xz (a sorted line of JSON for"
        " each record, with all passes) and counts.jsonl.xz (the same for batch counts, if any)."
        " bench-collect DIRECTORY --unpack RESULTS unpacks them to RESULTS/raw/TRIAL/rN.json and"
        " RESULTS/raw/counts/COUNT.json, where bench and Snakemake reuse them; an existing record"
        " with other content is never overwritten. Superseded records are omitted.",
    )
    parser.add_argument(
        "places",
        nargs="*",
        metavar="PLACE",
        help="a packed file (*.xz), a directory of packed files, a record, or a directory of"
        " records; default: results/raw",
    )
    parser.add_argument("--out", help="output file; default: standard output")
    parser.add_argument(
        "--latest", action="store_true", help="only the newest build of each system"
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--pack", metavar="DIRECTORY", help="directory for packed files")
    either.add_argument("--unpack", metavar="RESULTS", help="directory for unpacked records")
    parser.add_argument(
        "--status", action="store_true", help="show the current work of a pipeline run, by node"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
