"""Storage of trial and count records, as individual or packed files.

A packed file has one line of JSON per record, with sorted lines and keys, compressed with xz. Equal
records yield equal bytes, whatever their order and files.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from dynbatch.harness.errors import RecordError
from dynbatch.harness.machine.files import read_regular
from dynbatch.harness.records.count_row import AnyCount, parse_count, read_count, write_count
from dynbatch.harness.records.files import replace_whole
from dynbatch.harness.records.record import (
    SCHEMA_VERSION,
    Record,
    build_record_path,
    describe_first_fault,
    read_record,
    write_record,
)

T = TypeVar("T")
Key = tuple[str, int]
MAX_BYTES = 2**30  # limit of unpacked records, as xz can hide gigabytes of zeros in a small file
ADVICE = "restore the file or pack its records again (bench-collect --pack)"
_SAFE = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Format(Generic[T]):
    """Storage format of trial records or of count records.

    Attributes:
        packed: Name of a packed file.
        pattern: Pattern of the names of individual files.
        title: Description of a record in messages.
        key: Returns the unique key of a record.
        locate: Returns the path of a record in a results directory.
    """

    packed: str
    pattern: str
    title: str
    key: Callable[[T], Key]
    locate: Callable[[Path, T], Path]
    parse: Callable[[bytes], T]
    read: Callable[[Path], T]
    write: Callable[[Path, T], None]
    to_plain: Callable[[T], Mapping[str, Any]]


TRIALS: Format[Record] = Format(
    packed="records.jsonl.xz",
    pattern="r[0-9]*.json",
    title=f"a record of schema {SCHEMA_VERSION}",
    key=lambda record: (record.trial_id, record.trial.round),
    locate=lambda folder, record: build_record_path(
        folder, check_safe_name(record.trial_id), record.trial.round
    ),
    parse=Record.model_validate_json,
    read=read_record,
    write=write_record,
    to_plain=lambda record: json.loads(record.model_dump_json()),
)
COUNTS: Format[AnyCount] = Format(
    packed="counts.jsonl.xz",
    pattern="count-*.json",
    title="a record of a count",
    key=lambda row: (row.count_id, 0),
    locate=lambda folder, row: folder / "raw" / "counts" / f"{check_safe_name(row.count_id)}.json",
    parse=parse_count,
    read=read_count,
    write=write_count,
    to_plain=lambda row: row.to_dict(),
)


@dataclass(frozen=True, slots=True)
class RecordSet:
    """Trial records sorted by trial and round, and counts sorted by id, without duplicates."""

    records: tuple[Record, ...] = ()
    counts: tuple[AnyCount, ...] = ()

    def __len__(self) -> int:
        return len(self.records) + len(self.counts)


def read_all_records(places: Iterable[Path]) -> RecordSet:
    """Read all records at the given paths.

    Args:
        places: Packed files, directories of packed files, records, or directories to search for
            records.
    """
    unique = list(dict.fromkeys(places))
    return RecordSet(tuple(_read_items(unique, TRIALS)), tuple(_read_items(unique, COUNTS)))


def find_packed_files(location: Path) -> list[Path]:
    """Return the packed files at a path; empty if its records are individual files."""
    if location.is_dir():
        names = (TRIALS.packed, COUNTS.packed)
        return [path for name in names if (path := location / name).is_file()]
    return [location] if location.suffix == ".xz" else []


def write_packed(held: RecordSet, folder: Path) -> None:
    """Write the packed files of trial and count records, each atomically."""
    _pack(held.records, TRIALS, folder)
    _pack(held.counts, COUNTS, folder)


def unpack(held: RecordSet, results_dir: Path) -> int:
    """Write records to the paths that `bench` and `bench-schedule` use; return how many were new.

    Raises:
        RecordError: A record exists with other content; nothing is written then.
    """
    records = _find_new_files(held.records, TRIALS, results_dir)
    counts = _find_new_files(held.counts, COUNTS, results_dir)
    for path, record in records.items():
        write_record(path, record)
    for path, row in counts.items():
        write_count(path, row)
    return len(records) + len(counts)


def is_packed(content: bytes) -> bool:
    return content.startswith(b"\xfd7zXZ\0")


def read_packed(path: Path) -> list[bytes]:
    """Return the lines of a packed file.

    Raises:
        RecordError: The file is missing, not xz, damaged, truncated, empty, or larger than
            MAX_BYTES when unpacked.
    """
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ)  # lzma.open ignores trailing data
    try:
        text = decompressor.decompress(read_regular(path), MAX_BYTES + 1)
    except OSError as error:
        raise RecordError(
            f"{path} cannot be read ({error.strerror}); choose one of bench-collect --pack"
        ) from error
    except lzma.LZMAError as error:
        detail = str(error).lower().rstrip(".")
        raise RecordError(
            f"{path} is not a packed file or is damaged ({detail}); {ADVICE}"
        ) from error
    if len(text) > MAX_BYTES:
        raise RecordError(f"{path} unpacks to more than {MAX_BYTES} bytes; {ADVICE}")
    lines = text.split(b"\n")
    if not decompressor.eof:
        raise RecordError(f"{path} is truncated after line {len(lines) - 1}; {ADVICE}")
    if decompressor.unused_data or lines.pop() or not lines:
        problem = "has data after its end" if decompressor.unused_data else "has no complete lines"
        raise RecordError(f"{path} {problem}; {ADVICE}")
    return lines


def _read_items(places: Iterable[Path], form: Format[T]) -> list[T]:
    items: list[T] = []
    for location in places:
        for path in find_packed_files(location):
            lines = read_packed(path)
            is_ours = (b'"trial_id"' in lines[0]) == (form.packed == TRIALS.packed)
            items += _parse(path, lines, form) if is_ours else []
        items += [form.read(path) for path in _find_loose_files(location, form)]
    return _deduplicate(items, form)


def _parse(path: Path, lines: Iterable[bytes], form: Format[T]) -> list[T]:
    parsed = []
    for number, line in enumerate(lines, start=1):
        try:
            parsed.append(form.parse(line))
        except ValidationError as error:
            raise RecordError(
                f"{path}, line {number} is not {form.title}: {describe_first_fault(error)};"
                f" {ADVICE}"
            ) from error
    return parsed


def _find_loose_files(location: Path, form: Format[T]) -> list[Path]:
    if location.is_dir():
        paths = (path for path in location.rglob(form.pattern) if path.parent.name != "superseded")
        return sorted(paths)
    is_trial = form.packed == TRIALS.packed  # a single count is not read
    return [location] if is_trial and not find_packed_files(location) else []


def _deduplicate(items: Iterable[T], form: Format[T]) -> list[T]:
    """Sort records by key and drop duplicates."""
    unique: dict[Key, T] = {}
    for item in items:
        if unique.setdefault(form.key(item), item) != item:
            name, round_ = form.key(item)
            raise RecordError(
                f"two different records of {name}, round {round_}; remove one of their paths"
            )
    return [unique[key] for key in sorted(unique)]


def _pack(items: Iterable[T], form: Format[T], folder: Path) -> None:
    text = "".join(
        json.dumps(form.to_plain(item), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        + "\n"
        for item in _deduplicate(items, form)
    )
    if text:
        preset = 9 | lzma.PRESET_EXTREME
        packed = lzma.compress(text.encode(), lzma.FORMAT_XZ, preset=preset)
        replace_whole(folder / form.packed, packed)


def _find_new_files(items: Iterable[T], form: Format[T], results_dir: Path) -> dict[Path, T]:
    """Return the records that do not exist yet, by path."""
    new = {}
    for item in items:
        path = form.locate(results_dir, item)
        if not path.exists():
            new[path] = item
        elif not _is_equal(path, item, form):
            raise RecordError(
                f"{path} exists with other content; choose another directory: nothing was unpacked"
            )
    return new


def _is_equal(path: Path, item: T, form: Format[T]) -> bool:
    try:
        return form.read(path) == item
    except RecordError:
        return False


def check_safe_name(name: str) -> str:
    """Check that the id of a trial or count is safe as a file name, and return it.

    Raises:
        RecordError: It is not, for example because it would leave the directory.
    """
    if not _SAFE.fullmatch(name) or set(name) == {"."}:
        raise RecordError(f"record name {name!r} is not a valid file name; {ADVICE}")
    return name
