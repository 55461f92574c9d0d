"""A system that reads the time."""

from __future__ import annotations

import time

from harness.contracts.system import Clock
from tests.support.saboteurs import Honest


class Adapter(Honest):
    """Knows what it cost."""

    def run(self, clock: Clock, *, update: bool = True) -> None:
        began = time.perf_counter()
        super().run(clock, update=update)
        self.took_s = time.perf_counter() - began
