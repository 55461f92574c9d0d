"""Disk cache of compiled Triton kernels that verifies owner and checksum of every file.

Triton does not validate its cache: one empty file makes every later run fail. It needs plain files,
so the checksum of each is in an entry of its own next to the file.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from triton.runtime.cache import FileCacheManager

from dynbatch.harness.machine.caches import (
    read_cached,
    read_trusted_file,
    write_cached,
    write_private_file,
)


class KeptKernels(FileCacheManager):  # type: ignore[misc]
    """Triton cache manager for the files of one kernel or of one compiled launcher."""

    def has_file(self, filename: str) -> bool:
        """Return whether a file exists and has the content that was written."""
        path = Path(self._make_path(filename))
        content = read_trusted_file(path)
        return (
            content is not None
            and read_cached(_name_checksum_file(path)) == hashlib.sha256(content).digest()
        )

    def get_group(self, filename: str) -> dict[str, str] | None:
        """Return the paths of a group of files by name; None unless all files are intact."""
        group: dict[str, str] | None = super().get_group(filename)
        return group if group and all(map(self._has_path, group.values())) else None

    def _has_path(self, path: str) -> bool:
        """Return whether a path of a group is in this directory and its file is intact.

        Groups store absolute paths, which are wrong after the cache directory has moved.
        """
        name = Path(path).name
        return path == self._make_path(name) and self.has_file(name)

    def put(self, data: str | bytes, filename: str, binary: bool = True) -> str:
        """Write a file atomically and return its path.

        Raises:
            OSError: the file cannot be written.
        """
        path = Path(self._make_path(filename))
        content = data if isinstance(data, bytes) else str(data).encode()
        write_private_file(path, content)
        write_cached(_name_checksum_file(path), hashlib.sha256(content).digest())
        return str(path)


def _name_checksum_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
