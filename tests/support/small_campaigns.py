"""A campaign class in memory, which notes what it ran."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.campaign_parts.case import Case, Outcome, Run


@dataclass
class Noted:
    """Cases that end as `outcomes` say by number, "ok" for all others."""

    N_CASES: int = 10
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    ran: list[int] = field(default_factory=list)
    what: str = "draw"
    fails_at: int | None = None

    def does(self, number: int, rng: random.Random) -> dict[str, Any]:
        return {self.what: rng.randrange(10**9)}

    @contextmanager
    def runner(self, folder: Path) -> Iterator[Run]:
        assert list(folder.iterdir()) == []

        def run(case: Case, at: Path) -> Outcome:
            assert list(at.iterdir()) == []
            (at / "left.txt").write_text("deleted by the campaign")
            self.ran.append(case.number)
            if case.number == self.fails_at:
                raise ZeroDivisionError("odd")
            return self.outcomes.get(case.number, Outcome("ok"))

        yield run
