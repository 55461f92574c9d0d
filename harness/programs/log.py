"""Log of a recorder: one list of consecutive entries, and the functions that write it.

A call of a block is its kind, from FIRST_KIND on, followed by its operands and its external
numbers. A function with arbitrary operands and numbers would spend most of its time on packing
them. Each block therefore gets a generated function with its own parameters, which only adds one
tuple to the list. The other entries are events:

    RESUME fiber            the following entries belong to this fiber
    FORK first n            the fiber forks n fibers, numbered from `first`, and waits for
                            them; the following entries belong to `first`
    END parent              the fiber ends, and `parent` is at least as deep
    PHASE                   the fiber's next phase starts
    GHOSTS n                n ghost operators
    SEGMENT                   the next graph segment starts
    OPEN, BRANCH, CLOSE     branches that do not wait: before the first, after each, after all
    CHAIN kind n first ...  n calls, each on the result of the previous one, followed by the
                            numbers of all calls for each name of the kind
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynbatch.harness.programs.blocks import COUNTED, BlockShape
from dynbatch.harness.values.arrays import IntArray, as_int_array

RESUME, FORK, END, PHASE, GHOSTS, SEGMENT, OPEN, BRANCH, CLOSE, CHAIN = range(10)
FIRST_KIND = 10
NO_NUMBER = -1  # in place of a number that a call does not pass
# Results of running a log's segment: all is done, or nothing. Its runner defines further values.
DONE, UNDONE = 0, -1
MAX_NAMED = 16  # operands that are separate parameters

HEAD = f"""\
def make(_log, _most, _refuse, _slowly, _entry, _bare, _somewhere):
    _n = _opened = 0

    def so_far():
        return _n

    def opened():
        return _opened

    def chance(of, *key):
        nonlocal _opened
        _opened += 1
        return of, key

    def ghosts(n):
        nonlocal _log
        if n < 0:
            _refuse()
        _log += ({GHOSTS}, n)

    def stage():
        nonlocal _log
        _log += ({PHASE},)
        return _somewhere

    def chain(block, first, n, **numbers):
        nonlocal _log, _n
        entry = _entry(block, numbers, n) if numbers else _bare.get(block)
        if entry is None or type(n) is not int or n < 1 or _n + n > _most:
            return _slowly(block, first, n, **numbers)
        _log += ({CHAIN}, entry.kind, n, first)
        for name in entry.names:
            _log.extend(numbers[name] if name in numbers else ({NO_NUMBER},) * n)
        begin, _n = _n, _n + n
        return range(begin, _n)
"""
CALL = """
    def block_{name}({parameters}):
        nonlocal _n, _log
        _vertex = _n
        if _vertex >= _most:
            _refuse()
{entries}
        _n = _vertex + 1
        return _vertex
"""
TAIL = """
    return so_far, opened, chance, ghosts, stage, chain, {{{blocks}}}
"""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Layout of one kind of calls in the log."""

    kind: int
    type_id: int
    n_args: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """Layouts of all kinds of calls as arrays.

    Attributes:
        types: (n_kinds,).
        n_args: (n_kinds,), COUNTED if the number of operands precedes them in the log.
        first_name: (n_kinds + 1,), index of the first number of each kind in `names`.
        names: numbers of all kinds, as indices in the recording's names.
    """

    types: IntArray
    n_args: IntArray
    first_name: IntArray
    names: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class CallText:
    """Generated functions that write a log.

    Attributes:
        make: creates the functions for a new log.
        plain: by block, the entry with only the numbers that it needs.
        full: by block, the entry with all numbers that it accepts; the same if it needs all.
    """

    make: Callable[..., Any]
    plain: Mapping[str, LogEntry]
    full: Mapping[str, LogEntry]
    kinds: Kinds


def generate_call_text(shapes: Mapping[str, BlockShape], names: Sequence[str]) -> CallText:
    """Generate the functions that log the calls of blocks.

    Args:
        names: names of all external numbers that any block may be given.
    """
    entries: list[LogEntry] = []
    plain: dict[str, LogEntry] = {}
    full: dict[str, LogEntry] = {}
    text = [HEAD]
    for name, shape in shapes.items():
        needed = tuple(n for n in names if n in shape.pulls)
        optional = tuple(n for n in names if n not in shape.pulls)
        for of_kind, given in ((plain, needed), (full, needed + optional)):
            if of_kind is full and not optional:
                full[name] = plain[name]
                continue
            entry = LogEntry(FIRST_KIND + len(entries), shape.type_id, _count_args(shape), given)
            of_kind[name] = entry
            entries.append(entry)
        text.append(_write_function(name, plain[name], full[name]))
    text.append(TAIL.format(blocks=", ".join(f"{name!r}: block_{name}" for name in shapes)))
    namespace: dict[str, Any] = {}
    exec(compile("".join(text), "<calls of blocks>", "exec"), namespace)
    return CallText(namespace["make"], plain, full, _build_kinds(entries, names))


def _count_args(shape: BlockShape) -> int:
    """Return the number of operands of an entry, or COUNTED."""
    n = len(shape.operands)
    return COUNTED if shape.of_each is not None or n > MAX_NAMED else n


def _write_function(name: str, plain: LogEntry, full: LogEntry) -> str:
    """Write the source of one block's function; optional numbers require two kinds of entries."""
    operands = [f"_{k}" for k in range(max(0, plain.n_args))]
    optional = full.names[len(plain.names) :]
    parameters = [*operands, *(["/"] if operands else [])]
    packed = operands
    if plain.n_args == COUNTED:
        parameters, packed = ["*_all"], ["len(_all)", "*_all"]
    elif full.names:
        parameters.append("*")
    parameters += plain.names
    parameters += [f"{key}={NO_NUMBER}" for key in optional]
    short = _write_entry(plain, packed)
    entries = f"        {short}"
    if optional:
        lacking = " == ".join([*optional, str(NO_NUMBER)])
        entries = f"        if {lacking}:\n            {short}\n        else:\n            "
        entries += _write_entry(full, packed)
    return CALL.format(name=name, parameters=", ".join(parameters), entries=entries)


def _write_entry(entry: LogEntry, operands: Sequence[str]) -> str:
    return f"_log += ({', '.join([str(entry.kind), *operands, *entry.names])},)"


def _build_kinds(entries: Sequence[LogEntry], names: Sequence[str]) -> Kinds:
    order = {name: index for index, name in enumerate(names)}
    n_names = [len(entry.names) for entry in entries]
    return Kinds(
        types=as_int_array([entry.type_id for entry in entries]),
        n_args=as_int_array([entry.n_args for entry in entries]),
        first_name=as_int_array(np.cumsum([0, *n_names])),
        names=as_int_array([order[name] for entry in entries for name in entry.names]),
    )
