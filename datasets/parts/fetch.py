"""Downloads of corpora from their official addresses: the only code that uses the network."""

from __future__ import annotations

import http.client
import os
import signal
import struct
import tempfile
import time
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from dynbatch.harness.contracts.home import Checksums, Home, find_checksum, find_checksum_mismatch
from dynbatch.harness.errors import DataError

TIMEOUT_S = 30.0
CHUNK_BYTES = 1 << 16
SLOWEST_BYTES_PER_S = 1000  # minimum mean rate after the timeout, so that downloads end
MAX_LENGTH_DIGITS = 18
MAX_MESSAGE_CHARS = 120  # maximum characters of a server's text in a message
ENCRYPTED = 0x1  # a zip member's flag
COMPRESSED_AS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Errors of zipfile and zlib for corrupt or non-zip data.
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    ValueError,
    OSError,
)

Progress = Callable[[int, int | None], None]  # bytes so far, total bytes if known


class Response(Protocol):
    """Interface of an HTTP response that downloads use."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the header lines by name."""

    def read1(self, n_bytes: int, /) -> bytes:
        """Return the available bytes, at most n_bytes; empty at the end."""


Opener = Callable[[str, float], AbstractContextManager[Response]]  # address, timeout in seconds


def open_url(url: str, timeout_s: float) -> AbstractContextManager[Response]:
    """Open an address for reading; the timeout applies to each read of the socket."""
    response: AbstractContextManager[Response] = urllib.request.urlopen(url, timeout=timeout_s)
    return response


@contextmanager
def limit_time(seconds: float, reason: str) -> Iterator[None]:
    """Raise TimeoutError in a block that takes longer; works only in the main thread.

    A socket's timeout applies to each read, so that a server which sends a byte per second of a
    header line, a chunk extension or endless `100 Continue` responses never exceeds it. An alarm
    signal ends such a read, which is not retried if the signal handler raises (PEP 475). The alarm
    repeats every second, because some code catches an error and tries the next address.
    """

    def end(*_: Any) -> None:
        raise TimeoutError(reason)

    previous = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def find_faults(home: Home, sha256: Checksums, root: Path) -> dict[str, str]:
    """Return the problem of each part that has one: "missing", "changed" or "not readable"."""
    problems = {
        part: _find_fault(home.locate_part(root, part), find_checksum(sha256, part))
        for part in home.origins
    }
    return {part: fault for part, fault in problems.items() if fault is not None}


def _find_fault(path: Path, expected: str | None) -> str | None:
    try:
        if not path.is_file():
            return "missing"
        changed = (
            expected is not None and find_checksum_mismatch(expected, path.read_bytes()) is not None
        )
    except OSError:
        return "not readable"
    return "changed" if changed else None


def is_complete(home: Home, sha256: Checksums, root: Path) -> bool:
    """Return whether every file exists and has its checksum; a null checksum accepts any file."""
    return not find_faults(home, sha256, root)


def fetch(
    home: Home,
    sha256: Checksums,
    root: Path,
    progress: Progress = lambda done, total: None,
    opener: Opener = open_url,
) -> None:
    """Download and check the files of a corpus, then move them below the data root.

    If anything fails before the move, no file is added or replaced.

    Args:
        opener: opens an address; replaced in tests.

    Raises:
        DataError: for a failure of the network, an archive, a checksum or the target directory. The
            message names the sources and targets of the files, for a download by other means.
    """
    existed = root.exists()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{home.folder}-", dir=root) as staging:
            files = _collect(home, sha256, Path(staging), progress, opener)
            _check(home, files, sha256)
            _place(files, {part: home.locate_part(root, part) for part in files})
    except OSError as error:
        raise DataError(
            f"cannot write to {root} ({error.strerror}); choose another --data-root"
        ) from None
    except DataError as error:
        raise DataError(
            f"{error}; no file was changed: rerun, or {home.describe_manual_install(root)}"
        ) from None
    finally:
        if not existed:
            with suppress(OSError):  # it has the files now, or was not created
                root.rmdir()


def _collect(
    home: Home, sha256: Checksums, folder: Path, progress: Progress, opener: Opener
) -> dict[str, Path]:
    """Download into an empty directory, and return the file of each part."""
    most = dict.fromkeys(home.origins, home.most_bytes)  # a checksum allows only the known size
    most |= {part: n for part, n in home.n_bytes.items() if find_checksum(sha256, part) is not None}
    files = {part: folder / home.locate_part(folder, part).name for part in home.origins}
    if home.is_archive:
        archive = folder / "archive.zip"
        _write(archive, _stream_url(home.url, home.most_bytes, progress, opener))
        with _open_archive(home, archive) as opened:
            for part, member in home.names.items():
                _write(files[part], _extract_member(home, opened, member, most[part]))
        return files
    for part, url in home.origins.items():
        _write(files[part], _stream_url(url, most[part], progress, opener))
    return files


def _write(target: Path, pieces: Iterator[bytes]) -> None:
    """Write a file; only writing raises OSError, because `pieces` raises DataError."""
    with target.open("wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _stream_url(url: str, most_bytes: int, progress: Progress, opener: Opener) -> Iterator[bytes]:
    try:
        with ExitStack() as stack:
            with limit_time(TIMEOUT_S, f"timed out, no response in {TIMEOUT_S:g} s"):
                response = stack.enter_context(opener(url, TIMEOUT_S))
            total = _parse_length(response.headers.get("Content-Length"))
            if total is not None and total > most_bytes:
                raise DataError(f"{url} has {total} bytes, {_format_limit(most_bytes)}")
            encoding = (response.headers.get("Content-Encoding") or "identity").strip().lower()
            if encoding != "identity":
                raise DataError(
                    f"{url}: expected no content encoding, got {_shorten(repr(encoding))}"
                )
            done, passed_s, began_s = 0, 0.0, time.monotonic()
            while True:
                with limit_time(
                    _compute_time_limit(done) - passed_s, f"timed out after {done} bytes"
                ):
                    chunk = response.read1(CHUNK_BYTES)
                if not chunk:
                    break
                done += len(chunk)
                if done > most_bytes:
                    raise DataError(
                        f"{url} sends more than {done} bytes, {_format_limit(most_bytes)}"
                    )
                passed_s = time.monotonic() - began_s
                if passed_s > _compute_time_limit(done):
                    raise DataError(f"{url} is too slow, {done} bytes in {passed_s:.0f} s")
                yield chunk
                progress(done, total)
    except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: invalid address
        reason = getattr(error, "reason", None) or error  # urllib wraps the cause
        reason = getattr(reason, "strerror", None) or reason
        raise DataError(f"cannot download {url} ({_shorten(str(reason))})") from None
    if total is not None and done != total:
        raise DataError(f"{url} ended after {done} of {total} bytes")


def _compute_time_limit(n_bytes: int) -> float:
    """Return the time limit in seconds for n_bytes and the next chunk."""
    return max(TIMEOUT_S, n_bytes / SLOWEST_BYTES_PER_S)


def _shorten(text: str) -> str:
    """Return a server's text shortened to one line, without control characters."""
    line = " ".join(text[: 2 * MAX_MESSAGE_CHARS].split())
    cut = line[:MAX_MESSAGE_CHARS] + ("..." if len(line) > MAX_MESSAGE_CHARS else "")
    return cut if cut.isprintable() else repr(cut)


def _format_limit(n_bytes: int) -> str:
    return f"expected at most {n_bytes}"


def _parse_length(header: str | None) -> int | None:
    """Return the number of bytes in a Content-Length header; None if it is missing or invalid."""
    text = (header or "").strip()
    is_number = text.isascii() and text.isdecimal() and len(text) <= MAX_LENGTH_DIGITS
    return int(text) if is_number else None


def _open_archive(archive: Home, downloaded: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(downloaded)
    except DAMAGED:
        raise DataError(f"{archive.url} is not a zip file") from None


def _extract_member(
    archive: Home, opened: zipfile.ZipFile, member: str, most_bytes: int
) -> Iterator[bytes]:
    try:
        info = opened.getinfo(member)
    except KeyError as error:
        raise DataError(f"{archive.url}: {error.args[0]}") from None
    if info.flag_bits & ENCRYPTED:
        raise DataError(f"{archive.url}: {member} is encrypted")
    if info.compress_type not in COMPRESSED_AS:
        raise DataError(f"{archive.url}: {member} has an unsupported compression")
    if info.file_size > most_bytes:
        raise DataError(
            f"{archive.url}: {member} has {info.file_size} bytes, {_format_limit(most_bytes)}"
        )
    try:
        with opened.open(info) as stream:  # ends at the declared size
            while chunk := stream.read(CHUNK_BYTES):
                yield chunk
    except DAMAGED:
        raise DataError(f"{archive.url} is a damaged zip file: cannot read {member}") from None


def _place(files: Mapping[str, Path], targets: Mapping[str, Path]) -> None:
    """Move complete files into place.

    Raises:
        DataError: before any move, if a directory has the name of a file.
    """
    for target in targets.values():
        if target.is_dir():
            raise DataError(f"{target} is a directory; remove it")
    folders = {target.parent for target in targets.values()}
    made = [folder for folder in folders if not folder.exists()]
    try:
        for folder in folders:
            folder.mkdir(exist_ok=True)
        for part, file in files.items():
            file.replace(targets[part])
    finally:
        for folder in made:
            with suppress(OSError):  # fails if it has the files
                folder.rmdir()


def _check(home: Home, files: Mapping[str, Path], sha256: Checksums) -> None:
    for part, file in files.items():
        wrong = find_checksum_mismatch(find_checksum(sha256, part), file.read_bytes())
        if wrong is not None:
            raise DataError(f"{home.origins[part]} has {wrong}")
