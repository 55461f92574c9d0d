"""Downloads corpora from their official homes: the only code that uses the network."""

from __future__ import annotations

import http.client
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Protocol

from harness.contracts.home import Archive, Checksums, Home, checksum_of, difference
from harness.errors import DataError

TIMEOUT_S = 30.0
CHUNK_BYTES = 1 << 16
MAX_LENGTH_DIGITS = 18

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all where known


class Response(Protocol):
    """What is needed of an HTTP response."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the header lines by name."""

    def read(self, n_bytes: int, /) -> bytes:
        """Return up to n_bytes; empty at the end."""


Opener = Callable[[str, float], AbstractContextManager[Response]]  # address, timeout in seconds


def open_url(url: str, timeout_s: float) -> AbstractContextManager[Response]:
    """Open an address for reading; the timeout holds for the connection and for each read."""
    response: AbstractContextManager[Response] = urllib.request.urlopen(url, timeout=timeout_s)
    return response


def faults(home: Home, sha256: Checksums, root: Path) -> dict[str, str]:
    """Say of each part that is not as it should be whether it is "missing" or "changed"."""
    found = {}
    for part in home.origins:
        path, expected = home.path(root, part), checksum_of(sha256, part)
        if not path.is_file():
            found[part] = "missing"
        elif expected is not None and difference(expected, path.read_bytes()) is not None:
            found[part] = "changed"
    return found


def is_complete(home: Home, sha256: Checksums, root: Path) -> bool:
    """Say whether every file is in place with its checksum (null: if it is there)."""
    return not faults(home, sha256, root)


def fetch(
    home: Home,
    sha256: Checksums,
    root: Path,
    progress: Progress = lambda done, total: None,
    opener: Opener = open_url,
) -> None:
    """Download, check and only then place the files of a corpus below the data root.

    Files are moved into place whole; whatever goes wrong before, no file is added or replaced.

    Raises DataError when the network, an archive, a checksum or the target folder is at fault; it
    says where the files are from and where they belong, for whoever gets them in another way.
    """
    existed = root.exists()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{home.folder}-", dir=root) as staging:
            files = _collect(home, Path(staging), progress, opener)
            _check(home, files, sha256)
            (root / home.folder).mkdir(exist_ok=True)
            for part, file in files.items():
                file.replace(home.path(root, part))
    except OSError as error:
        raise DataError(
            f"cannot write below {root} ({error.strerror}); choose another --data-root"
        ) from None
    except DataError as error:
        raise DataError(
            f"{error}; nothing was placed: try again, or {_by_hand(home, root)}"
        ) from None
    finally:
        if not existed:
            with suppress(OSError):  # it holds the files now, or never came to be
                root.rmdir()


def _collect(home: Home, folder: Path, progress: Progress, opener: Opener) -> dict[str, Path]:
    """Download into an empty folder; returns the file of each part."""
    if isinstance(home, Archive):
        _download(home.url, folder / "archive.zip", progress, opener)
        return _extract(home, folder / "archive.zip", folder)
    files = {part: folder / home.path(folder, part).name for part in home.origins}
    for part, url in home.origins.items():
        _download(url, files[part], progress, opener)
    return files


def _download(url: str, target: Path, progress: Progress, opener: Opener) -> None:
    """Copy the response to a file, and refuse one that ends early, where its length is told."""
    try:
        with opener(url, TIMEOUT_S) as response, target.open("wb") as file:
            total = _length(response.headers.get("Content-Length"))
            done = 0
            while chunk := response.read(CHUNK_BYTES):
                file.write(chunk)
                done += len(chunk)
                progress(done, total)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error  # urllib wraps the cause
        reason = getattr(reason, "strerror", None) or reason
        raise DataError(f"cannot download {url} ({reason})") from None
    if total is not None and done != total:
        raise DataError(f"{url} ended after {done} of {total} bytes")


def _length(header: str | None) -> int | None:
    """Return the number of bytes that a header tells; None for a missing or meaningless one."""
    text = (header or "").strip()
    is_number = text.isascii() and text.isdecimal() and len(text) <= MAX_LENGTH_DIGITS
    return int(text) if is_number else None


def _extract(archive: Archive, downloaded: Path, folder: Path) -> dict[str, Path]:
    """Write each member next to the archive; returns them by split."""
    files = {}
    try:
        with zipfile.ZipFile(downloaded) as opened:
            for split, member in archive.members.items():
                files[split] = folder / f"{split}.txt"
                files[split].write_bytes(opened.read(member))
    except (zipfile.BadZipFile, zlib.error):
        raise DataError(f"{archive.url} did not give a zip file") from None
    except KeyError as error:
        raise DataError(f"{archive.url}: {error.args[0]}") from None
    return files


def _check(home: Home, files: Mapping[str, Path], sha256: Checksums) -> None:
    for part, file in files.items():
        wrong = difference(checksum_of(sha256, part), file.read_bytes())
        if wrong is not None:
            raise DataError(f"{home.origins[part]} has {wrong}")


def _by_hand(home: Home, root: Path) -> str:
    """Say what to do without this program, and what to know of the corpus."""
    generated = "or use a generated corpus, see `bench-data list`"
    return f"put {home.by_hand(root)}; {generated}{home.note and f' ({home.note})'}"
