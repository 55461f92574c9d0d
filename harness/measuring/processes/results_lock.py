"""Locks of results directories; a run that takes one ends processes left by earlier runs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from dynbatch.harness.measuring.processes.process_tree import end_marked, mark
from dynbatch.harness.planning.job_specs import VARIABLE as RUN_PLAN
from dynbatch.harness.planning.locks import hold_results_dir

MARK = "BENCH_TURN"  # environment variable of all processes started under locks: locks and owners
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
            lock = hold_results_dir(
                folder,
                holder,
                choose_patience_s(),
                notify,
                alone=alone,
                first=partial(end_marked, MARK),
            )
            stack.enter_context(_mark_environment(stack.enter_context(lock)))
        yield


@contextmanager
def _mark_environment(name: str) -> Iterator[None]:
    before = os.environ.get(MARK)
    os.environ[MARK] = f"{before} {mark(name)}" if before else mark(name)
    try:
        yield
    finally:
        if before is None:
            del os.environ[MARK]
        else:
            os.environ[MARK] = before
