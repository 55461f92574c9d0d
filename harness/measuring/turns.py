"""Runs on one folder of results take turns, and end what one before them left."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from harness.measuring.supervise import end_marked, mark
from harness.planning.run_plan import VARIABLE as RUN_PLAN
from harness.planning.running import turn

MARK = "BENCH_TURN"  # in the environment of all that a turn starts: its locks, and whose
PATIENCE_S = 600.0  # as long as a trial may take, unless it is told otherwise


def patience_s() -> float:
    """How long to wait for a turn: a job of the pipeline without end, as its failure ends a run."""
    return math.inf if RUN_PLAN in os.environ else PATIENCE_S


@contextmanager
def turns(
    results_dirs: Iterable[Path], who: str, say: Callable[[str], None], *, alone: bool = True
) -> Iterator[None]:
    """Be the only one on this machine that measures into these folders, while the block lasts.

    Processes that an earlier run left, killed as it was, are ended first. who, say, alone: see
    harness.planning.running.turn.

    Raises BenchError where another run does not end in time.
    """
    with ExitStack() as stack:
        # Sorted: two that want the same folders do not wait for each other.
        for folder in sorted({folder.resolve() for folder in results_dirs}):
            one = turn(folder, who, patience_s(), say, alone=alone, first=partial(end_marked, MARK))
            stack.enter_context(_marked(stack.enter_context(one)))
        yield


@contextmanager
def _marked(name: str) -> Iterator[None]:
    before = os.environ.get(MARK)
    os.environ[MARK] = f"{before} {mark(name)}" if before else mark(name)
    try:
        yield
    finally:
        if before is None:
            del os.environ[MARK]
        else:
            os.environ[MARK] = before
