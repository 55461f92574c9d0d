"""A folder of files that a library must have, kept between processes as one entry of a cache."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from harness.machine.kept import keep, kept


def unpack_kept(entry: Path, folder: Path) -> None:
    """Write the files of an entry below a folder; none where there is no intact one.

    What is there already stays: a library may be loaded, and what changed under it would crash.
    """
    content = kept(entry)
    if content is not None:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            names = [name for name in packed.namelist() if not (folder / name).exists()]
            packed.extractall(folder, names)


def keep_packed(folder: Path, entry: Path) -> None:
    """Keep all files below a folder that have something in them, which locks have not."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.stat().st_size:
                packed.write(path, path.relative_to(folder))
    keep(entry, content.getvalue())
