"""Folders in which this project keeps between processes what it can work out again."""

from __future__ import annotations

import os
from pathlib import Path

NAME = "dynamic-batching-benchmark"


def cache_folder(name: str) -> Path | None:
    """A folder of this user's cache, made where it is not there; None where none can be written."""
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(home) / NAME / name
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    return folder if os.access(folder, os.W_OK) else None
