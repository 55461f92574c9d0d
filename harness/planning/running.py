"""Whether a run of the pipeline is going on in a folder of results.

Snakemake works without its own lock (profiles/default), so that a killed run leaves none behind;
this one the system takes back with the process.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

NAME = ".run"


def begin_run(results_dir: Path) -> TextIO:
    """Say that a run goes on here, until the file that is returned is closed, or the process ends.

    Several may.
    """
    results_dir.mkdir(parents=True, exist_ok=True)
    file = (results_dir / NAME).open("w")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


@contextmanager
def while_none_runs(results_dir: Path) -> Iterator[bool]:
    """Whether none goes on here; none begins before the block ends, where that is so."""
    with (results_dir / NAME).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
