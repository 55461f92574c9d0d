"""A small archive, and openers that serve it without a network."""

from __future__ import annotations

import hashlib
import io
import zipfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from dynbatch.datasets.parts.fetch import Opener, Response
from dynbatch.harness.contracts.home import Home

ARCHIVE = Home(
    "https://example.org/trees.zip", "corpus", {"train": "t/train.txt", "dev": "d"}, is_archive=True
)
FILES = {"train": b"(2 a)\n", "dev": b"(1 b)\n"}
SHA256 = {split: hashlib.sha256(content).hexdigest() for split, content in FILES.items()}


def zipped(archive: Home = ARCHIVE, files: dict[str, bytes] = FILES) -> bytes:
    """Pack files under the archive's member names."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        for split, content in files.items():
            opened.writestr(archive.names[split], content)
    return buffer.getvalue()


class FakeResponse:
    """Response in small pieces, which may fail at the end; `length` is "" for no header."""

    def __init__(
        self, content: bytes, length: int | str | None = None, failure: BaseException | None = None
    ) -> None:
        reported = str(len(content) if length is None else length)
        self.headers = {"Content-Length": reported} if reported else {}
        self._content = io.BytesIO(content)
        self._failure = failure

    def read1(self, n_bytes: int, /) -> bytes:
        chunk = self._content.read(min(n_bytes, 50))
        if not chunk and self._failure:
            raise self._failure
        return chunk


def serving(
    content: bytes, length: int | str | None = None, failure: BaseException | None = None
) -> Opener:
    """Return an opener that answers every address with this FakeResponse."""

    def opener(url: str, timeout_s: float) -> AbstractContextManager[Response]:
        assert url.startswith("https://")
        assert timeout_s > 0
        return nullcontext(FakeResponse(content, length, failure))

    return opener


def everything_below(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}
