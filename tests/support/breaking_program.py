"""Model whose program breaks the rule named by the option `rule`, for the command line.

model.model=tests.support.breaking_program +model.options.rule=goes_back
"""

from __future__ import annotations

from typing import Any

from dynbatch.harness.contracts.model import ModelSizes
from dynbatch.harness.programs.model import ProgramModel
from tests.support.bad_programs import BAD, Given, a_number

PROGRAMS = {program.__name__: program for program in (*(one for one, _ in BAD), a_number)}


class Breaks(Given):
    """Model with the same program for every instance."""

    name = "breaks"
    instance_kind = "chain"

    def __init__(self, sizes: ModelSizes, rule: str = "none", seed: int = 0) -> None:
        ProgramModel.__init__(self, sizes, seed=seed, rule=rule)
        self.given = PROGRAMS.get(rule, lambda p: p.leaf(word=0, label=0))

    def key_of(self, instance: Any) -> int:
        return 0
