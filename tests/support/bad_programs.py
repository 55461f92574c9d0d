"""Programs that each break one rule, with the expected error message.

test_bad_programs.WRONG has more, which are compiled first.
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


def waits_for_nothing(p: CallWriter) -> Body:
    yield p.chance(None, 1)


def never_joins(p: CallWriter) -> Body:
    p.fork(leaf(p))
    yield p.chance(p.leaf(word=0), 1)


def asks_and_goes_on(p: CallWriter) -> Any:
    p.value(p.leaf(word=0), "h")
    return p.leaf(word=0)


def leaf(p: CallWriter) -> Body:
    yield p.stage()
    return p.leaf(word=0)


def yields_a_value(p: CallWriter) -> Body:
    yield p.leaf(word=0)


def yields_twice(p: CallWriter) -> Body:
    fork = p.fork(leaf(p))
    yield fork
    yield fork


def forks_a_result(p: CallWriter) -> Body:
    yield p.fork(p.leaf(word=0))


def waits_in_concurrent(p: CallWriter) -> Any:
    return p.concurrent(lambda: leaf(p))


def other_shapes(p: CallWriter) -> Any:
    return p.project(p.unary_a(p.leaf(word=0)))


def too_few(p: CallWriter) -> Any:
    return p.binary(p.leaf(word=0))


def no_operand(p: CallWriter) -> Any:
    return p.unary_a(None)


def no_operand_in_a_chain(p: CallWriter) -> Any:
    return p.chain(p.unary_a, None, 2)


def no_word(p: CallWriter) -> Any:
    return p.leaf()


def other_number(p: CallWriter) -> Any:
    return p.leaf(word=0, letter=1)


def no_such_block(p: CallWriter) -> Any:
    return p.trinary(p.leaf(word=0))


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


def returns_nothing(p: CallWriter) -> None:
    p.leaf(word=0)


HERE = r"bad_programs\.py:\d+"
BAD = [
    (waits_for_nothing, rf"{HERE} waits for a value of None, which no block computed"),
    (never_joins, rf"{HERE} forks branches without waiting; yield it"),
    (asks_and_goes_on, rf"{HERE} requests a value without waiting; yield it"),
    (yields_a_value, "a program yields a int; yield each result of fork, value, chance or stage"),
    (yields_twice, "a program yields a Fork; yield each .* once"),
    (forks_a_result, rf"{HERE} forks a int; expected a generator"),
    (waits_in_concurrent, rf"{HERE} leaf waits for values, but runs in concurrent; yield p\.fork"),
    (other_shapes, rf"{HERE} calls project with other shapes than traced: operand 0 lacks a state"),
    (too_few, rf"{HERE} calls binary with 1 operands, but it was traced with 2"),
    (no_operand, rf"{HERE} calls unary_a with operand 0 None; expected the result"),
    (no_operand_in_a_chain, rf"{HERE} calls unary_a with operand 0 None; expected the result"),
    (no_word, rf"{HERE} calls leaf with the numbers none; it needs word and accepts word, label"),
    (other_number, rf"{HERE} calls leaf with the numbers letter, word; it needs word and accepts"),
    (no_such_block, rf"{HERE} calls an unknown block trinary; choose one of binary, leaf"),
    (goes_back, rf"{HERE} calls unary_b at depth 1 .* has depth 3 of .* only after their join"),
    (recurses, r"a program recurses deeper than \d+ calls; end the recursion, or fork it"),
    (returns_nothing, "a program returns a value that no block computed; return a result"),
]


def a_number(p: CallWriter) -> Body:
    value = p.leaf(word=0)
    return p.leaf(word=int((yield p.value(value, "h", 1)) > 0), label=0)
