"""Kernels that Triton compiled, kept between processes: found only where they are ours and intact.

Triton reads its files without looking at them: an empty one ends every later run. It must have
them as files, so each has its checksum in an entry beside it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from triton.runtime.cache import FileCacheManager

from harness.machine.caches import keep, kept, put_in_place, read_ours


class KeptKernels(FileCacheManager):  # type: ignore[misc]
    """What Triton asks for the files of one kernel, or of one program that starts kernels."""

    def has_file(self, filename: str) -> bool:
        """Say whether a file is there as it was put."""
        path = Path(self._make_path(filename))
        content = read_ours(path)
        return content is not None and kept(_beside(path)) == hashlib.sha256(content).digest()

    def get_group(self, filename: str) -> dict[str, str] | None:
        """Return the files that belong together by their names; None unless all are intact."""
        group: dict[str, str] | None = super().get_group(filename)
        return group if group and all(map(self._has_path, group.values())) else None

    def _has_path(self, path: str) -> bool:
        """A group names its files by their paths, which may be another folder's since it moved."""
        name = Path(path).name
        return path == self._make_path(name) and self.has_file(name)

    def put(self, data: str | bytes, filename: str, binary: bool = True) -> str:
        """Write a file whole; returns its path. Raises OSError where it cannot be written."""
        path = Path(self._make_path(filename))
        content = data if isinstance(data, bytes) else str(data).encode()
        put_in_place(path, content)
        keep(_beside(path), hashlib.sha256(content).digest())
        return str(path)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
