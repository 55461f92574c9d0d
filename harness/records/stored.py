"""What places hold: records of trials and of counts, packed or as files of their own.

A place is a packed file (*.xz), a folder that holds packed files, the file of one record, or a
folder that is searched for such files; superseded records are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.records.count_row import AnyCount, parse_count, read_count, write_count
from harness.records.packed import (
    RECORDS,
    is_record_line,
    key_of,
    not_there,
    one_each,
    parse_lines,
    parse_records,
    read_packed,
    safe,
    unpacked_records,
    write_packed,
)
from harness.records.record import Record, read_record, write_record

COUNTS = "counts.jsonl.xz"


@dataclass(frozen=True, slots=True)
class Held:
    """Records sorted by trial and round, counts sorted by their names; one of each at most."""

    records: tuple[Record, ...] = ()
    counts: tuple[AnyCount, ...] = ()


def packed_files(place: Path) -> list[Path]:
    """The packed files that a place is or holds; none where its records are files of their own."""
    if place.is_dir():
        return [path for name in (RECORDS, COUNTS) if (path := place / name).is_file()]
    return [place] if place.suffix == ".xz" else []


def kinds_in(folder: Path) -> list[str]:
    """Names of the kinds of machines whose packed records a folder holds, a folder each.

    None where it holds packed files, or records, itself.
    """
    if not folder.is_dir() or packed_files(folder):
        return []
    return sorted(one.name for one in folder.iterdir() if one.is_dir() and packed_files(one))


def records_in(places: Iterable[Path]) -> list[Record]:
    """Read all records of trials, sorted, equal ones once.

    Raises RecordError for a damaged file, and for two unlike records of one trial's round.
    """
    found: list[Record] = []
    for place in dict.fromkeys(places):
        for path in packed_files(place):
            lines = read_packed(path)
            found += parse_records(path, lines) if is_record_line(lines[0]) else []
        found += [read_record(path) for path in _loose(place, "r[0-9]*.json")]
    return one_each(found, key_of)


def counts_in(places: Iterable[Path]) -> list[AnyCount]:
    """Read all records of counts, as records_in does."""
    found: list[AnyCount] = []
    for place in dict.fromkeys(places):
        for path in packed_files(place):
            lines = read_packed(path)
            what = "the record of a count"
            found += [] if is_record_line(lines[0]) else parse_lines(path, lines, parse_count, what)
        if place.is_dir():
            found += [read_count(path) for path in _loose(place, "count-*.json")]
    return one_each(found, lambda row: (row.count_id, 0))


def _loose(place: Path, pattern: str) -> list[Path]:
    if place.is_dir():
        found = (path for path in place.rglob(pattern) if path.parent.name != "superseded")
        return sorted(found)
    return [] if packed_files(place) else [place]


def held_in(places: Iterable[Path]) -> Held:
    """Read everything that the places hold."""
    places = list(places)
    return Held(tuple(records_in(places)), tuple(counts_in(places)))


def pack_counts(path: Path, rows: Iterable[AnyCount]) -> None:
    """Write counts sorted by their names."""
    write_packed(path, (row.to_dict() for row in one_each(rows, lambda row: (row.count_id, 0))))


def unpack(held: Held, results_dir: Path) -> int:
    """Lay out records below a folder as `bench` and `bench-schedule` do; return how many were new.

    Raises RecordError, with nothing written, where one is there with other content.
    """
    folder = results_dir / "raw" / "counts"
    records = unpacked_records(held.records, results_dir)
    counts = {folder / f"{safe(row.count_id)}.json": row for row in held.counts}
    new_records, new_counts = not_there(records, read_record), not_there(counts, read_count)
    for path in new_records:
        write_record(path, records[path])
    for path in new_counts:
        write_count(path, counts[path])
    return len(new_records) + len(new_counts)
