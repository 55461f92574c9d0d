"""Programs that each break one rule, with the expected error message.

test_bad_programs.py has more, as texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynbatch.harness.programs.writer import Body, CallWriter
from tests.support.scripted_programs import Scripted, ScriptedModel

ONE = [Scripted((), 0)]


class Given(ScriptedModel):
    """Model that runs a given function as its program."""

    def __init__(self, program: Callable[[CallWriter], Any]) -> None:
        super().__init__()
        self.given = program

    def program(self, p: CallWriter, instance: Scripted) -> Any:
        return self.given(p)


def goes_back(p: CallWriter) -> Any:
    seen: list[Any] = []

    def deep() -> None:
        a = p.unary_a(p.leaf(word=0))
        seen.append(p.unary_a(p.unary_a(a)))

    def reads() -> Any:
        return p.unary_b(seen[0])

    return p.concurrent(deep, reads)


def recurses(p: CallWriter) -> Any:
    return recurses(p)


def ends_early(p: CallWriter) -> Any:
    return p.map(lambda word: p.leaf(word=next(iter(word))), [()])


HERE = r"bad_programs\.py:\d+"
BAD = [
    (goes_back, rf"{HERE} calls unary_b at depth 1 .* has depth 3 of .* only after their join"),
    (ends_early, rf"{HERE} raises StopIteration: "),
    (recurses, r"a program recurses deeper than \d+ calls; end the recursion, or fork it"),
]


def a_number(p: CallWriter) -> Body:
    value = p.leaf(word=0)
    return p.leaf(word=int((yield p.value(value, "h", 1)) > 0), label=0)
