"""Random programs for hypothesis: scripts of calls, branches, loops, waits and stages, and texts.

A script is a list of statements over an environment of values; operands are indices modulo the
number of values. A script that waits for nothing runs as a plain function.

A text has all constructs of compiled programs.
"""

from __future__ import annotations

import itertools
import linecache
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, ClassVar

from hypothesis import strategies as st

from dynbatch.harness.contracts.model import ModelSizes, ParameterSpec
from dynbatch.harness.programs.blocks import RecordingOptions
from dynbatch.harness.programs.model import ProgramModel
from dynbatch.harness.programs.writer import Body, CallWriter
from dynbatch.harness.values.instances import Chain
from dynbatch.harness.vertex import (
    VertexTracer,
    pick_neg_log_softmax,
    sigmoid,
    spread,
    sum_edges,
    tanh,
)

WIDTH, N_WORDS, N_CLASSES = 3, 5, 4

OPTIONS = [RecordingOptions(*values) for values in itertools.product((True, False), repeat=4)]


@dataclass(frozen=True)
class Call:
    """Call of a block by its name."""

    block: str
    operands: tuple[int, ...]
    word: int  # that a leaf looks up


@dataclass(frozen=True)
class Branches:
    """Concurrent scripts: each sees the values before it, and adds its last value."""

    scripts: tuple[Script, ...]


@dataclass(frozen=True)
class Loop:
    """A script, repeated n times."""

    n: int
    script: Script


@dataclass(frozen=True)
class Choose:
    """Wait for a value, followed by one of two chains of unary calls, padded to equal depth."""

    of: int
    number: int
    lengths: tuple[int, int]


@dataclass(frozen=True)
class NextStage:
    """Next program phase, only in the script of an instance."""


Statement = Call | Branches | Loop | Choose | NextStage
Script = tuple[Statement, ...]


@dataclass(frozen=True)
class Scripted:
    """Instance with a script, and a number that determines its decisions."""

    script: Script
    number: int


class ScriptedModel(ProgramModel):
    """Model with blocks of no, one, two or any number of operands, and two sets of weights.

    `project` reads only leaves, so that it can be hoisted.
    """

    name = "scripted"
    instance_kind = "script"
    vertex_types = ("leaf", "project", "unary", "binary", "many")
    copies: ClassVar[Mapping[str, tuple[str, ...]]] = {"unary": ("a", "b")}

    def __init__(self, seed: int = 0) -> None:
        sizes = ModelSizes(WIDTH, {"words": N_WORDS, "classes": N_CLASSES})
        super().__init__(sizes, seed=seed)

    def key_of(self, instance: Scripted) -> int:
        return zlib.crc32(str(instance.number).encode())

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": WIDTH, "x": WIDTH}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        square = ParameterSpec((WIDTH, WIDTH), 0.9)
        names = ("W", "U_a", "U_b", "L", "G", "R", "E")
        table = ParameterSpec((N_WORDS, WIDTH), 0.9)
        bias, out = ParameterSpec((WIDTH,), 0.3), ParameterSpec((WIDTH, N_CLASSES), 0.9)
        return {"words": table, "b": bias, "W_out": out} | dict.fromkeys(names, square)

    def program(self, p: CallWriter, instance: Scripted) -> Any:
        if waits(instance.script):
            return _waiting(p, instance.script, [p.leaf(word=0)], (), [0])
        return _plain(p, instance.script, [p.leaf(word=0)])

    def leaf(self, v: VertexTracer) -> None:
        v.scatter(x=v.lookup("words", v.pull("word")))
        v.scatter(h=tanh(v.lookup("words", v.pull("word"))))

    def project(self, v: VertexTracer) -> None:
        v.scatter(h=v.gather(0).x @ v.parameter("W"))

    def unary(self, v: VertexTracer, weights: str) -> None:
        v.scatter(h=tanh(v.gather(0).h @ v.parameter(f"U_{weights}") + v.parameter("b")))

    def binary(self, v: VertexTracer) -> None:
        left, right = v.gather(0).h, v.gather(1).h
        gate = sigmoid(left @ v.parameter("G"))  # left is multiplied twice
        v.scatter(h=tanh(left @ v.parameter("L") + right @ v.parameter("R")) * gate)

    def many(self, v: VertexTracer) -> None:
        each = v.gather_each().h
        gate = sigmoid(v.lookup("words", v.pull("word")) @ v.parameter("E"))
        v.scatter(h=tanh(sum_edges(each * spread(gate))))

    def output(self, v: VertexTracer) -> None:
        logits = v.gather(0).h @ v.parameter("W_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))


def waits(script: Script) -> bool:
    """Check that a script must be a generator."""
    for one in script:
        if isinstance(one, Choose | NextStage):
            return True
        if isinstance(one, Branches) and any(map(waits, one.scripts)):
            return True
        if isinstance(one, Loop) and waits(one.script):
            return True
    return False


def _call(p: CallWriter, one: Call, values: Sequence[Any]) -> Any:
    operands = [values[k % len(values)] for k in one.operands]
    label = one.word % N_CLASSES
    if one.block == "leaf":
        return p.leaf(word=one.word, label=label)
    if one.block == "project":  # reads its own leaf, the only block that scatters x
        return p.project(p.leaf(word=one.word), label=label)
    if one.block == "many":
        return p.many(*operands, word=one.word, label=label)
    return getattr(p, one.block)(*operands, label=label)


def _plain(p: CallWriter, script: Script, values: list[Any]) -> Any:
    values = list(values)
    for one in script:
        if isinstance(one, Call):
            values.append(_call(p, one, values))
        elif isinstance(one, Branches):
            before = list(values)
            values += p.map(lambda part, seen=before: _plain(p, part, seen)[-1], one.scripts)
        elif isinstance(one, Loop):
            for _ in range(one.n):
                values.append(_plain(p, one.script, values)[-1])
    return _labelled(p, values)


def _waiting(
    p: CallWriter, script: Script, values: list[Any], path: tuple[int, ...], count: list[int]
) -> Body:
    values = list(values)
    for place, one in enumerate(script):
        here = (*path, place)
        if isinstance(one, Call):
            values.append(_call(p, one, values))
        elif isinstance(one, Branches):
            parts = [
                _waiting(p, part, values, (*here, k), count) for k, part in enumerate(one.scripts)
            ]
            found = yield p.fork(*parts)
            values += [each[-1] for each in found]
        elif isinstance(one, Loop):
            for k in range(one.n):
                found = yield from _waiting(p, one.script, values, (*here, k), count)
                values.append(found[-1])
        elif isinstance(one, Choose):
            values.append((yield from _chosen(p, one, values, here)))
        else:
            yield p.stage()
    return _labelled(p, values)


def _chosen(p: CallWriter, one: Choose, values: Sequence[Any], path: tuple[int, ...]) -> Body:
    value = values[one.of % len(values)]
    first = (yield p.chance(value, one.number, *path)) < 0.5
    length = one.lengths[0 if first else 1]
    block = p.unary_a if first else p.unary_b
    value = block(value, label=0)
    value = [value, *p.chain(block, value, length, label=[1] * length)][-1]
    p.ghosts(max(one.lengths) - length)
    return p.unary_a(value, label=2)  # after the join


def _labelled(p: CallWriter, values: list[Any]) -> list[Any]:
    """Return the outputs: the last value passes another block, so that it has a label."""
    return [*values[1:], p.unary_b(values[-1], label=3)]


BLOCKS = ("leaf", "project", "unary_a", "unary_b", "binary", "many")
PLACES = st.integers(0, 20)


@st.composite
def calls(draw: st.DrawFn) -> Call:
    block = draw(st.sampled_from(BLOCKS))
    fixed = {"leaf": 0, "project": 0, "binary": 2, "many": draw(st.integers(0, 3))}
    n = fixed.get(block, 1)
    operands = tuple(draw(st.lists(PLACES, min_size=n, max_size=n)))
    return Call(block, operands, draw(st.integers(0, N_WORDS - 1)))


CHOICES = st.builds(
    Choose, PLACES, st.integers(0, 9), st.tuples(st.integers(0, 3), st.integers(0, 3))
)


def statements(depth: int, *, may_wait: bool) -> st.SearchStrategy[Statement]:
    """Draw a call, a wait, or a statement that contains scripts."""
    plain: st.SearchStrategy[Statement] = st.one_of(calls(), CHOICES) if may_wait else calls()
    if depth == 0:
        return plain
    inner = st.lists(statements(depth - 1, may_wait=may_wait), max_size=3).map(tuple)
    branches = st.builds(Branches, st.lists(inner, max_size=3).map(tuple))
    loops = st.builds(Loop, st.integers(0, 3), inner)
    return st.one_of(plain, branches, loops)


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Draw a program's script, with stages only at its top level."""
    may_wait = draw(st.booleans())
    parts = draw(st.lists(statements(2, may_wait=may_wait), max_size=5))
    if may_wait and draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), NextStage())
    return tuple(parts)


@st.composite
def instances(draw: st.DrawFn) -> list[Scripted]:
    """Draw up to three instances with different scripts."""
    found = draw(st.lists(scripts(), min_size=1, max_size=3))
    return [Scripted(script, k) for k, script in enumerate(found)]


# --- texts ---

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
