"""`bench-collect`: raw records to one tidy CSV, refusing what may not be compared.

    bench-collect [PLACE ...] [--out FILE] [--latest]

A place is a record or a folder of records, by default results/raw. Rows that may stand in one table
have the same `group`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.errors import BenchError, ConfigError, RecordError
from harness.records.comparable import check_builds, latest_builds
from harness.records.record import read_record
from harness.records.tidy import find_records, to_csv, to_rows
from harness.terminal.argument_parser import OneLineParser


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when the table was written, 1 with one line when it cannot be."""
    options = _parser().parse_args(arguments)
    try:
        text = collect(options.places, latest=options.latest)
        if options.out is None:
            sys.stdout.write(text)
        else:
            _write(options.out, text)
    except BenchError as error:
        print(f"bench-collect: {error}", file=sys.stderr)
        return 1
    return 0


def collect(places: Sequence[Path], *, latest: bool) -> str:
    """Return the CSV of all records in `places`; raises RecordError for a broken or unlike one."""
    paths = find_records(places)
    if not paths:
        searched = ", ".join(str(place) for place in places)
        raise RecordError(f"no records in {searched}; run bench first, or name another folder")
    records = [read_record(path) for path in paths]
    if latest:
        records = latest_builds(records)
    check_builds(records)
    return to_csv(to_rows(records))


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written ({error.strerror}); choose another --out"
        ) from error


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="bench-collect", description="Raw records to one CSV.")
    parser.add_argument("places", nargs="*", type=Path, default=[Path("results/raw")])
    parser.add_argument("--out", type=Path, help="file to write; standard output if left out")
    parser.add_argument(
        "--latest", action="store_true", help="where code or versions changed, keep the newest"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
