"""A case of the campaign, what came of it, and what a file of classes/ offers.

A class is a module with

    N_CASES: int                                     of a whole campaign
    def does(number, rng) -> dict                    what is done in a case, as plain JSON
    def runner(folder) -> context manager of Run     prepares the class once, and cleans up
"""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol, cast, get_args

from scripts.campaign_parts import classes

Verdict = Literal[
    "ok",  # as promised
    "traceback",  # a stack in place of one line
    "hang",  # not done in its time
    "lost",  # a record that was complete is gone or damaged
    "measured_twice",  # what had a record was measured again
    "accepted",  # what is wrong was taken without a word
    "leftover",  # a process or a temporary file survived
    "other",  # another promise was broken; words say which
    "not_judged",  # nothing independent says what is right here
    "skipped",  # this machine lacks what the case needs
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
HARMLESS: tuple[Verdict, ...] = ("ok", "not_judged", "skipped")


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a class; `does` says all that is done in it, in plain JSON."""

    case_class: str
    number: int
    seed: int
    does: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rng(self) -> random.Random:
        """Random numbers of this case alone."""
        return _rng(self.seed, self.case_class, f"{self.number}/run")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case; words: one line on what was seen.

    Raises ValueError for a verdict that is none.
    """

    verdict: Verdict
    words: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"{self.verdict} is no verdict; choose one of {', '.join(VERDICTS)}")


OK = Outcome("ok")
Run = Callable[[Case, Path], Outcome]  # a case in an empty folder of its own


class CaseClass(Protocol):
    """What a file of classes/ holds."""

    N_CASES: int

    def does(self, number: int, rng: random.Random) -> dict[str, Any]:
        """What is done in a case."""

    def runner(self, folder: Path) -> AbstractContextManager[Run]:
        """What runs cases; `folder` is for what they share."""


def found_classes(package: ModuleType = classes) -> dict[str, CaseClass]:
    """Every class by its name, which is that of its file."""
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = {name: importlib.import_module(f"{package.__name__}.{name}") for name in names}
    return {name: cast(CaseClass, module) for name, module in modules.items()}


def cases_of(name: str, kind: CaseClass, seed: int, share: float) -> list[Case]:
    """The cases of a class, or a share of them, at least one; which ones the seed decides."""
    n_wanted = max(1, round(kind.N_CASES * share))
    numbers = sorted(_rng(seed, name, "share").sample(range(kind.N_CASES), n_wanted))
    return [
        Case(name, number, seed, kind.does(number, _rng(seed, name, str(number))))
        for number in numbers
    ]


def _rng(seed: int, name: str, what: str) -> random.Random:
    return random.Random(f"{seed}/{name}/{what}")
