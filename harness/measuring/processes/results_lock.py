"""Locks of results directories; a run that takes one ends processes left by earlier runs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dynbatch.harness.measuring.processes.process_tree import end_marked, mark_processes
from dynbatch.harness.planning.job_specs import VARIABLE as RUN_PLAN
from dynbatch.harness.planning.locks import hold_results_dir

PATIENCE_S = 600.0  # the default time limit of a trial


def choose_patience_s() -> float:
    """Return how long to wait for a lock.

    A job of the pipeline waits without limit, because its failure would end the whole run.
    """
    return math.inf if RUN_PLAN in os.environ else PATIENCE_S


@contextmanager
def lock_results_dirs(
    results_dirs: Iterable[Path], holder: str, notify: Callable[[str], None], *, alone: bool = True
) -> Iterator[None]:
    """Lock results directories, so that only this run on this machine measures into them.

    Processes left by an earlier run that was killed are ended first.
    """
    with ExitStack() as stack:
        # Sorted to avoid deadlocks between runs that lock the same directories.
        for folder in sorted({folder.resolve() for folder in results_dirs}):
            patience_s = choose_patience_s()
            lock = hold_results_dir(
                folder, holder, patience_s, notify, alone=alone, first=end_marked
            )
            stack.enter_context(mark_processes(stack.enter_context(lock)))
        yield
