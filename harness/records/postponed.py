"""Rounds that a run left for the next one, since its budget was over: empty files.

The pipeline wants a file of every step that it has begun; an empty one says that nothing was
measured, and is gone before the next run looks what is there.
"""

from __future__ import annotations

from pathlib import Path


def postpone(path: Path) -> None:
    """Leave an empty file in a record's place, unless there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def is_postponed(path: Path) -> bool:
    """Whether a file says that nothing was measured."""
    return path.stat().st_size == 0


def forget_postponed(results_dir: Path) -> None:
    """Delete all such files of a folder of results."""
    for path in (results_dir / "raw").glob("*/r[0-9]*.json"):
        if is_postponed(path):
            path.unlink(missing_ok=True)
