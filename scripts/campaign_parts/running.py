"""Runs the cases of all classes, class after class, until all are done or the time is up."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.campaign_parts.case import Case, CaseClass, Outcome, Run, cases_of
from scripts.campaign_parts.done import Done, State

Tell = Callable[[Done], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which cases are wanted, and until when one may begin, by the clock `now`.

    Raises ValueError for a share that is none.
    """

    seed: int
    share: float
    until_s: float
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share={self.share} is not allowed; give more than 0 and at most 1")

    def cases(self, classes: Mapping[str, CaseClass]) -> dict[str, list[Case]]:
        """The wanted cases by class."""
        return {name: cases_of(name, kind, self.seed, self.share) for name, kind in classes.items()}


def run_cases(
    classes: Mapping[str, CaseClass], plan: Plan, state: State, tell: Tell
) -> dict[str, list[Done]]:
    """Run what is not done yet; returns what is known of every wanted case."""
    wanted = plan.cases(classes)
    for name, cases in wanted.items():
        waiting = [case for case in cases if state.of(case) is None]
        if waiting and plan.now() < plan.until_s:
            for done in _run_class(classes[name], waiting, plan):
                state.add(done)
                tell(done)
    return {
        name: [known for case in cases if (known := state.of(case)) is not None]
        for name, cases in wanted.items()
    }


def _run_class(kind: CaseClass, waiting: Sequence[Case], plan: Plan) -> Iterator[Done]:
    with _folder("campaign-class-") as shared, contextlib.ExitStack() as stack:
        run = _entered(stack, kind, shared)
        for case in waiting:
            if plan.now() >= plan.until_s:
                return
            begin = plan.now()
            with _folder("campaign-") as folder:
                outcome = _outcome(run, case, folder)
            yield Done(case, outcome, plan.now() - begin)


def _entered(stack: contextlib.ExitStack, kind: CaseClass, shared: Path) -> Run:
    """What runs the cases of a class; where that cannot be prepared, each of them says so."""
    try:
        return stack.enter_context(kind.runner(shared))
    except Exception as error:
        fault = error

    def fail(case: Case, folder: Path) -> Outcome:
        raise RuntimeError(f"no case of this class can run: {fault}") from fault

    return fail


def _outcome(run: Run, case: Case, folder: Path) -> Outcome:
    """A case that fails by itself is told as such, and the campaign goes on."""
    try:
        return run(case, folder)
    except Exception as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        return Outcome("other", f"the case itself failed: {words}"[:500])


@contextlib.contextmanager
def _folder(prefix: str) -> Iterator[Path]:
    """An empty folder, deleted afterwards whatever became of it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
