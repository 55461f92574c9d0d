"""Where the files of a corpus come from, where they lie, and whether they are the right ones."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import DataError
from harness.machine.files import read_regular

SPLITS = ("train", "dev", "test")
GIT_BLOB = "git-blob:"  # begins a checksum that is git's name of the file, not its SHA-256

MOST_BYTES = 1 << 26  # of a download whose size is not known: the largest here has half of it

Checksums = Mapping[str, str | None] | None  # per part, see Home; None switches a check off


@dataclass(frozen=True, slots=True)
class Home:
    """The official home of a corpus; a loader module that needs a download holds one as HOME.

    url: of one file each, with `{name}` in place of its name; or of one zip file (is_archive).
    folder: for the files. names: what each part is called there, as a member of the zip file is; a
        part is a split, or one of the files that splits need.
    suffix: here a part's file is called after the part, with this behind; None: as there.
    note: what to know when a download fails.
    n_bytes: how long each part's file is, where known; most_bytes: how long another can be, and
        the zip file.
    """

    url: str
    folder: str
    names: Mapping[str, str] = field(default_factory=lambda: dict(zip(SPLITS, SPLITS, strict=True)))
    suffix: str | None = ".txt"
    is_archive: bool = False
    note: str = ""
    n_bytes: Mapping[str, int] = field(default_factory=dict)
    most_bytes: int = MOST_BYTES

    @property
    def origins(self) -> dict[str, str]:
        """Say where each part is from."""
        if self.is_archive:
            return {part: f"{member} from {self.url}" for part, member in self.names.items()}
        return {part: self.url.replace("{name}", name) for part, name in self.names.items()}

    def bound_bytes(self, part: str, *, checked: bool) -> int:
        """How long the file of a part can be; checked: a checksum allows no other length."""
        return self.n_bytes.get(part, self.most_bytes) if checked else self.most_bytes

    def path(self, root: Path, part: str) -> Path:
        """Where the file of a part lies below the data root; raises DataError for no part of it."""
        if part not in self.names:
            raise DataError(f"{self.folder} has no {part} part; it has {', '.join(self.names)}")
        name = self.names[part] if self.suffix is None else f"{part}{self.suffix}"
        return root / self.folder / name

    def by_hand(self, root: Path) -> str:
        """Say what to put where without this program."""
        url = self.url.replace("{name}", _braces(self.names.values()))
        return f"the files of {url} in place by hand, as {_all_of(self.path, root, self.names)}"


def _all_of(path: Callable[[Path, str], Path], root: Path, parts: Iterable[str]) -> str:
    """The files of all parts, which lie in one folder, as a shell would expand them."""
    paths = [path(root, part) for part in parts]
    suffixes = {file.suffix for file in paths}
    if len(suffixes) > 1:
        return str(paths[0].parent / _braces(file.name for file in paths))
    return f"{paths[0].parent / _braces(file.stem for file in paths)}{suffixes.pop()}"


def _braces(names: Iterable[str]) -> str:
    return f"{{{','.join(names)}}}"


def home_of(loader: str) -> Home | None:
    """Return where the corpus of a loader module comes from, None for one that is generated."""
    home: Home | None = getattr(importlib.import_module(loader), "HOME", None)
    return home


def checksum_of(sha256: Checksums, part: str) -> str | None:
    """Return the expected checksum of one part, None where it is not to be checked."""
    return None if sha256 is None else sha256.get(part)


def checksum_like(expected: str | None, content: bytes) -> str:
    """Return the checksum of some bytes in the kind of the expected one: SHA-256, or git's."""
    if expected is not None and expected.startswith(GIT_BLOB):
        header = f"blob {len(content)}\0".encode()
        return GIT_BLOB + hashlib.sha1(header + content, usedforsecurity=False).hexdigest()
    return hashlib.sha256(content).hexdigest()


def difference(expected: str | None, content: bytes) -> str | None:
    """Say which checksum was found and which expected, None where they are equal or unchecked."""
    found = checksum_like(expected, content)
    if expected in (None, found):
        return None
    if found.startswith(GIT_BLOB):
        return f"{found}, expected {expected}"
    return f"sha256 {found}, expected {expected}"


def read_checked(path: Path, expected: str | None, fetch_name: str) -> tuple[bytes, str]:
    """Read a file of a corpus; returns its bytes and their SHA-256.

    expected: None switches the check off, for files of one's own; "git-blob:..." is git's name.

    Raises DataError when the file is missing, cannot be read, or has another checksum.
    """
    try:
        content = read_regular(path)
    except FileNotFoundError:
        raise DataError(
            f"{path} is missing; run `bench-data fetch {fetch_name}`, or point BENCH_DATA "
            f"(data_root) at the folder that holds {path.parent.name}/; a data set whose name ends "
            "in _synthetic needs no file"
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check the file") from None
    wrong = difference(expected, content)
    if wrong is not None:
        raise DataError(
            f"{path} has {wrong}; run `bench-data fetch {fetch_name}` "
            f"to replace it, or set dataset.options.sha256=null to use a file of your own"
        )
    return content, checksum_like(None, content)
