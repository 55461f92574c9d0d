"""Random programs as text, from all constructs of compiled programs, and models that have them."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from hypothesis import strategies as st

from dynbatch.harness.values.instances import Chain
from tests.support.scripted_programs import ScriptedModel

MODULES = itertools.count()
HEAD = """\
def program(self, p, sentence: Chain):
    v, read, found, i, words = p.leaf(word=0), [], {{}}, 0, sentence.words.tolist()
{body}
    yield p.chance(v, 99)
    return read + [found[key] for key in sorted(found)] + [v]


def _branch(self, p, v, depth, read):
    i = depth
{branch}
    i += int((yield p.chance(v, 98)) * 4)
    if depth > 1:
        a, b = yield p.fork(
            self._branch(p, v, depth - 2, read), self._branch(p, v, depth // 2, read)
        )
        read.append(b)
        return a
    return v


def _walk(self, p, v, i, read):
{walk}
    i += int((yield p.chance(v, 97)) * 3)
    return v


def _twice(self, p, v):
    return p.unary_b(p.unary_b(v, label=1), label=2)


def _picked(self, i, n):
    if i < n and not i == 3 or n > 5:
        return i, True
    for k in range(n):
        if k * 2 > i:
            return k, False
    return i % 5, n > 2
"""
CALLS = (
    "v = p.unary_a(v, label={n} % 4)",
    "v = p.unary_b(v)",
    "v = p.binary(v, p.leaf(word={n} % 5, label=1), label=i % 4)",
    "v = p.many(*read[-{n}:], word=1)",
    "v = p.many(v, p.leaf(word=len(read) % 5), word=2, label=3)",
    "read.append(v)",
    "read += p.chain(p.unary_a, v, {n} + 1)",
    "v = p.chain(p.unary_b, v, {n} + 2, label=[{n}] * ({n} + 2))[-1]",
    "v = p.many(*p.map(lambda a, b: p.binary(a, b, label=2), read[:{n}], read[-{n}:]), word=0)",
    "b = p.unary_a(v)\na = p.unary_b(p.unary_a(v))",
    "v = p.binary(a, b)",
    "p.ghosts({n})",
    "i += {n}",
    "i = i * 2 - {n} if i < 40 else i // 3",
    "i, is_more = self._picked(i, {n})\nif is_more or i == {n}:\n    v = p.unary_a(v)",
    "if len(read) > 0:\n    v = read.pop()",
    "read = read[1:-1] + [v]",
    "read = [one for one in read for _ in range({n} % 2 + 1)]",
    "v = self._twice(p, v)\nv = self._twice(p, self._twice(p, v))",
    "i += (i > {n}) + (0 < i <= len(read))",
    "b = a\nif i > {n}:\n    b = v\na = p.unary_a(v) if b > a else p.binary(v, b)\nb = a",
    "c = [1, 2]\nc += [{n}]\ni += c[i % 3] * len([i for i in range({n})])",
    "i = (i if i > 1 else 1) - -i % 3",
)
OF_PROGRAM = ("found[i] = v", "found[{n}] = v", "p.stage()", "i += words[{n} % len(words)]")
ALONE = (
    "if (yield p.chance(v, {at}, i)) < 0.{n}:\n    v = p.unary_a(v)\nelse:\n    p.ghosts(1)",
    "number = yield p.chance(v, {at})\ni = int(number * {n})",
)
TOGETHER = (
    "v = yield from self._walk(p, v, i, read)",
    "a, b = yield p.fork(self._branch(p, v, {n}, read), self._branch(p, v, 1, [v]))",
    "a, v = yield p.fork(self._branch(p, b, 0, read), self._branch(p, a_leaf(p), i % 4, read))",
)
LOOPS = (
    "for k in range({n}):\n    i += k",
    "for k, one in enumerate(read[-3:]):\n    if k == {n}:\n        break\n    i += one % 7",
    "for one, other in zip(read[:4], [2, 3, 1]):\n    v = p.binary(one, v, label=other % 4)",
    "for k, (one, other) in enumerate(zip(read[:2], read[-2:], strict=True)):\n    i += one % 3",
    "for one in [i, {n}, 3]:\n    v = p.unary_a(v, label=one % 4)",
    "n = {n}\nwhile n > 0:\n    n -= 1",
    "for one in range(2, {n}):\n    if one % 2:\n        continue\n    v = p.unary_b(v)",
)


def a_leaf(p: Any) -> Any:
    """Return a leaf; a function outside of the model."""
    return p.leaf(word=4)


def indented(text: str, depth: int) -> list[str]:
    return [f"{'    ' * depth}{line}" for line in text.split("\n")]


def write_source(body: str) -> str:
    """Return a program of these statements, whose forked functions only wait."""
    lines = "\n".join(indented(body, 1))
    return HEAD.format(body=lines, branch="    a = v", walk="    a = v")


@st.composite
def bodies(draw: st.DrawFn, kinds: Sequence[str]) -> str:
    """Draw statements, some in loops, after values for all names that they read."""
    lines, places = ["    a = b = v"], itertools.count()

    def statement(depth: int, among: Sequence[str]) -> None:
        text = draw(st.sampled_from(among)).replace("{n}", str(draw(st.integers(1, 4))))
        lines.extend(indented(text.replace("{at}", str(next(places))), depth))

    for _ in range(draw(st.integers(1, 9))):
        if draw(st.integers(0, 3)) == 0:
            statement(1, LOOPS)
            for _ in range(draw(st.integers(0, 2))):
                statement(2, kinds)
        else:
            statement(1, kinds)
    return "\n".join(lines)


@st.composite
def sources(draw: st.DrawFn) -> str:
    """Draw the text of a program and its functions, in which forked functions wait, too."""
    plain = (*CALLS, *ALONE)
    return HEAD.format(
        body=draw(bodies((*CALLS, *OF_PROGRAM, *ALONE, *TOGETHER))),
        branch=draw(bodies(plain)),
        walk=draw(bodies(plain)),
    )


def model_of(source: str, seed: int = 0, **outside: Any) -> ScriptedModel:
    """Return a model with these functions, and globals."""
    file = f"<written program {next(MODULES)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    module: dict[str, Any] = {"Chain": Chain, "a_leaf": a_leaf, "__name__": "written"} | outside
    exec(compile(source, file, "exec"), module)
    methods: dict[str, Any] = {
        name: one for name, one in module.items() if isinstance(one, FunctionType)
    }
    methods |= {"key_of": lambda _, sentence: sentence.n_words}
    return type("Written", (ScriptedModel,), methods)(seed)
