"""Many records in one file: a line of JSON each, sorted, keys sorted, all compressed with xz.

Equal records make equal bytes, in whatever order and from whatever files they come.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from harness.errors import RecordError
from harness.machine.files import read_regular
from harness.records.files import replace_whole
from harness.records.record import SCHEMA_VERSION, Record, first_fault, path_of

RECORDS = "records.jsonl.xz"
MOST_BYTES = 2**30  # of records, unpacked: xz makes gigabytes of zeros a file that anyone sends
ADVICE = "get the file anew, or pack its records again (bench-collect --pack)"
_SAFE = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")

T = TypeVar("T")
Key = tuple[str, int]


def write_packed(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write plain values in their order, whole or not at all."""
    text = "".join(
        json.dumps(line, sort_keys=True, ensure_ascii=False, separators=(",", ":")) + "\n"
        for line in lines
    )
    preset = 9 | lzma.PRESET_EXTREME
    replace_whole(path, lzma.compress(text.encode(), lzma.FORMAT_XZ, preset=preset))


def is_packed(content: bytes) -> bool:
    """Whether the content of a file is one that is packed as these are."""
    return content.startswith(b"\xfd7zXZ\0")


def read_packed(path: Path) -> list[bytes]:
    """Return the lines of a packed file.

    Raises RecordError for a file that is missing, no xz, damaged, cut off, empty or larger than
    MOST_BYTES when unpacked.
    """
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    try:
        text = decompressor.decompress(read_regular(path), MOST_BYTES + 1)
    except OSError as error:
        raise RecordError(
            f"{path} cannot be read ({error.strerror}); name a file that bench-collect --pack wrote"
        ) from error
    except lzma.LZMAError as error:
        detail = str(error).lower().rstrip(".")
        raise RecordError(f"{path} is no packed file, or damaged ({detail}); {ADVICE}") from error
    if len(text) > MOST_BYTES:
        raise RecordError(f"{path} unpacks to more than {MOST_BYTES} bytes; {ADVICE}")
    lines = text.split(b"\n")
    if not decompressor.eof:
        raise RecordError(f"{path} is cut off behind line {len(lines) - 1}; {ADVICE}")
    if decompressor.unused_data or lines.pop() or not lines:
        found = "goes on behind its end" if decompressor.unused_data else "holds no whole lines"
        raise RecordError(f"{path} {found}; {ADVICE}")
    return lines


def parse_lines(
    path: Path, lines: Iterable[bytes], parse: Callable[[bytes], T], what: str
) -> list[T]:
    """Validate every line; raises RecordError naming file, line and the first fault."""
    parsed = []
    for number, line in enumerate(lines, start=1):
        try:
            parsed.append(parse(line))
        except ValidationError as error:
            raise RecordError(
                f"{path}, line {number} is not {what}: {first_fault(error)}; {ADVICE}"
            ) from error
    return parsed


def is_record_line(line: bytes) -> bool:
    """Whether a line is about a trial; else it is about a count."""
    return b'"trial_id"' in line


def pack_records(path: Path, records: Iterable[Record]) -> None:
    """Write records sorted by trial and round; raises RecordError for two unlike ones of one."""
    sorted_ = one_each(records, key_of)
    write_packed(path, (json.loads(record.model_dump_json()) for record in sorted_))


def parse_records(path: Path, lines: Iterable[bytes]) -> list[Record]:
    """Validate lines as records; raises RecordError naming file, line and the first fault."""
    what = f"a record of schema {SCHEMA_VERSION}"
    return one_each(parse_lines(path, lines, Record.model_validate_json, what), key_of)


def key_of(record: Record) -> Key:
    """What there is only one record of."""
    return record.trial_id, record.trial.round


def one_each(items: Iterable[T], key: Callable[[T], Key]) -> list[T]:
    """Sort by key, leaving out what is there twice; raises RecordError for unlike ones."""
    found: dict[Key, T] = {}
    for item in items:
        if found.setdefault(key(item), item) != item:
            name, round_ = key(item)
            raise RecordError(
                f"two unlike records of {name}, round {round_}, were given; leave one of their"
                " places out"
            )
    return [found[name] for name in sorted(found)]


def unpacked_records(records: Iterable[Record], results_dir: Path) -> dict[Path, Record]:
    """Where each record goes below a folder of results; see RecordError of `safe`."""
    return {path_of(results_dir, safe(r.trial_id), r.trial.round): r for r in records}


def safe(name: str) -> str:
    """Return a trial's or a count's name; raises RecordError where it would lead elsewhere."""
    if not _SAFE.fullmatch(name) or set(name) == {"."}:
        raise RecordError(f"a record is named {name!r}, which can be no file's name; {ADVICE}")
    return name


def not_there(files: Mapping[Path, T], read: Callable[[Path], T]) -> list[Path]:
    """Which files have yet to be written.

    Raises RecordError where one is there with other content, which nobody may overwrite.
    """
    for path, value in files.items():
        if path.exists() and not _is_equal(path, value, read):
            raise RecordError(
                f"{path} is there with other content: nothing was unpacked; choose another folder"
            )
    return [path for path in files if not path.exists()]


def _is_equal(path: Path, value: T, read: Callable[[Path], T]) -> bool:
    try:
        return read(path) == value
    except RecordError:
        return False
