"""Files of a corpus: origins, paths and checksums."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Annotated

from dynbatch.harness.contracts.options import import_complete
from dynbatch.harness.errors import DataError
from dynbatch.harness.machine.files import read_regular
from dynbatch.harness.values.checked import OneOf

SPLITS = ("train", "dev", "test")
Split = Annotated[str, OneOf(SPLITS)]
GIT_BLOB = "git-blob:"  # prefix of a checksum that is the file's object id in git, not its SHA-256

MAX_BYTES = 1 << 26  # limit of a download of unknown size: the largest one here has half of it

Checksums = Mapping[str, str | None] | None  # per part, see Home; None disables a check


@dataclass(frozen=True, slots=True)
class Home:
    """Official source of a corpus, which a loader module with downloads defines as HOME.

    A part is a split, or one of the files that the splits need.

    Attributes:
        url: URL of each file, with `{name}` for its name, or of one zip file (is_archive).
        folder: Directory for the files, below the data root.
        names: Name of each part at the source, or its member of the zip file.
        suffix: Suffix of local files, which are named after their part; None keeps the source's
            names.
        note: Advice if a download fails.
        n_bytes: Size of each part's file, if known.
        most_bytes: Largest size of other files and of the zip file.
    """

    url: str
    folder: str
    names: Mapping[str, str] = field(default_factory=lambda: dict(zip(SPLITS, SPLITS, strict=True)))
    suffix: str | None = ".txt"
    is_archive: bool = False
    note: str = ""
    n_bytes: Mapping[str, int] = field(default_factory=dict)
    most_bytes: int = MAX_BYTES

    @property
    def origins(self) -> dict[str, str]:
        if self.is_archive:
            return {part: f"{member} from {self.url}" for part, member in self.names.items()}
        return {part: self.url.replace("{name}", name) for part, name in self.names.items()}

    def locate_part(self, root: Path, part: str) -> Path:
        """Return the path of a part's file below the data root."""
        if part not in self.names:
            raise DataError(
                f"{self.folder} has no part {part}; choose from {', '.join(self.names)}"
            )
        name = self.names[part] if self.suffix is None else f"{part}{self.suffix}"
        return root / self.folder / name

    def describe_manual_install(self, root: Path) -> str:
        """Describe manual installation and generated corpora, with the note on the corpus."""
        url = self.url.replace("{name}", _format_braces(self.names.values()))
        files = f"the files of {url} at {_format_paths(self.locate_part, root, self.names)}"
        generated = "or choose a generated corpus, see `bench-data list`"
        return f"put {files}; {generated}{self.note and f' ({self.note})'}"


def _format_paths(locate: Callable[[Path, str], Path], root: Path, parts: Iterable[str]) -> str:
    """Return the paths of all parts, which share a directory, as a shell brace expansion."""
    paths = [locate(root, part) for part in parts]
    suffixes = {file.suffix for file in paths}
    if len(suffixes) > 1:
        return str(paths[0].parent / _format_braces(file.name for file in paths))
    return f"{paths[0].parent / _format_braces(file.stem for file in paths)}{suffixes.pop()}"


def _format_braces(names: Iterable[str]) -> str:
    return f"{{{','.join(names)}}}"


def import_loader(name: str) -> ModuleType:
    return import_complete("dataset.loader", name, "dynbatch.datasets.sst")


def find_home(loader: str) -> Home | None:
    """Return the source of a loader module's corpus, or None if it is generated.

    Raises:
        ConfigError: The module does not exist or cannot be imported.
    """
    home: Home | None = getattr(import_loader(loader), "HOME", None)
    return home


def find_checksum(sha256: Checksums, part: str) -> str | None:
    """Return the expected checksum of one part, or None if it is not checked."""
    return None if sha256 is None else sha256.get(part)


def compute_checksum(expected: str | None, content: bytes) -> str:
    """Return the checksum of a content, of the same kind as the expected one."""
    if expected is not None and expected.startswith(GIT_BLOB):
        header = f"blob {len(content)}\0".encode()
        return GIT_BLOB + hashlib.sha1(header + content, usedforsecurity=False).hexdigest()
    return hashlib.sha256(content).hexdigest()


def find_checksum_mismatch(expected: str | None, content: bytes) -> str | None:
    """Return the found and expected checksums if they differ; None if equal or unchecked."""
    actual = compute_checksum(expected, content)
    if expected in (None, actual):
        return None
    if actual.startswith(GIT_BLOB):
        return f"{actual}, expected {expected}"
    return f"sha256 {actual}, expected {expected}"


def read_checked(path: Path, expected: str | None, fetch_name: str) -> tuple[bytes, str]:
    """Read a file of a corpus; return its bytes and their SHA-256.

    Args:
        expected: Expected checksum; None disables the check, for the user's own files.
        fetch_name: Name of the dataset for `bench-data fetch`, for messages.

    Raises:
        DataError: The file is missing, cannot be read, or has another checksum.
    """
    try:
        content = read_regular(path)
    except FileNotFoundError:
        raise DataError(
            f"{path} is missing; run `bench-data fetch {fetch_name}`, or set BENCH_DATA "
            f"(data_root) to the directory with {path.parent.name}/; datasets whose names end in "
            "_synthetic need no file"
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check the file") from None
    wrong = find_checksum_mismatch(expected, content)
    if wrong is not None:
        raise DataError(
            f"{path} has {wrong}; run `bench-data fetch {fetch_name}` "
            f"to replace it, or set dataset.options.sha256=null to use your own file"
        )
    return content, compute_checksum(None, content)
