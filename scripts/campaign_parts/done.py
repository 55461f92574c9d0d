"""Which cases of a campaign are done: a line of JSON each, on the disk before the next begins."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts.campaign_parts.case import Case, Outcome


@dataclass(frozen=True, slots=True)
class Done:
    """A case that has ended, and how long it took."""

    case: Case
    outcome: Outcome
    seconds: float


class State:
    """The ended cases of one campaign in a file, which a later call goes on with."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = {_key(one.case): one for one in _read(path)}

    def of(self, case: Case) -> Done | None:
        """What came of a case; None where it did not run, or something else was done in it."""
        known = self._known.get(_key(case))
        return known if known is not None and known.case.does == case.does else None

    def add(self, done: Done) -> None:
        """Keep what came of a case."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(done)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._known[_key(done.case)] = done

    def forget(self) -> None:
        """Begin anew."""
        self._path.unlink(missing_ok=True)
        self._known = {}


def _key(case: Case) -> tuple[str, int, int]:
    return case.case_class, case.number, case.seed


def _read(path: Path) -> list[Done]:
    """All whole lines; half of one, which a killed campaign may have left, is cut off."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return [_done_of(json.loads(line)) for line in whole.splitlines()]


def _done_of(plain: dict[str, Any]) -> Done:
    return Done(Case(**plain["case"]), Outcome(**plain["outcome"]), plain["seconds"])
