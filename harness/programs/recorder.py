"""Recorder of the calls of a mini-batch's programs: each event is an entry of one log.

Entries are decoded, and calls checked, all together (dynbatch.harness.programs.decode): at the end
of a segment whose values have to be computed, or of the mini-batch. A checked recorder decodes
after every call, so the same pass identifies the invalid call.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from numbers import Integral
from typing import Any, NoReturn

from dynbatch.harness.errors import ProgramError
from dynbatch.harness.programs.blocks import BlockShape, Feeds, Rules
from dynbatch.harness.programs.decode import (
    BACKWARD,
    FINE,
    LACKING,
    MAX_PHASES,
    MISFIT,
    check_fault,
    extract_depth,
    extract_phase,
)
from dynbatch.harness.programs.decoder import Decoder, RecordedPiece, pack_numbers
from dynbatch.harness.programs.log import (
    BRANCH,
    CLOSE,
    GHOSTS,
    OPEN,
    PHASE,
    SEGMENT,
    CallText,
    LogEntry,
)
from dynbatch.harness.programs.writer import (
    Block,
    CallWriter,
    Fork,
    StageRequest,
    find_location,
    require_result,
)

MAX_VERTICES = 1_000_000  # of one instance; a program that calls more is considered endless
SOMEWHERE = StageRequest("")
SMALLEST, LARGEST = -(2**31), 2**31 - 1  # of the numbers that calls are given
_new = tuple.__new__  # takes a third of the time of a named tuple's own


class Recorder(CallWriter):
    """Recorder that reports errors without their line.

    Values are numbers of vertices, in the order of recording. Fibers are numbers, too: instance k
    starts as fiber k.

    Attributes:
        first_of_segment: first vertex of the current graph segment.
    """

    def __init__(
        self,
        rules: Rules,
        text: CallText,
        n_instances: int,
        decoder: Decoder,
        *,
        is_checked: bool = False,
    ) -> None:
        super().__init__(is_checked=is_checked)
        self.rules, self.options = rules, rules.options
        self.most_vertices = MAX_VERTICES * max(1, n_instances)
        self.first_of_segment = self.n_segments = 0
        self._log: list[int] = []
        self._decoder = decoder
        slowly, bare = partial(CallWriter.chain, self), dict[Block, LogEntry]()
        functions = (_refuse, slowly, self._find_entry, bare, SOMEWHERE)
        made = text.make(self._log, self.most_vertices, *functions)
        self._so_far, self._opened, chance, ghosts, stage, chain, blocks = made
        self._entries: dict[Block, tuple[LogEntry, LogEntry]] = {
            block: (text.plain[name], text.full[name]) for name, block in blocks.items()
        }
        bare |= {block: plain for block, (plain, _) in self._entries.items() if not plain.names}
        self.__dict__ |= blocks | {"note": self._log.extend}
        if not is_checked:
            self.__dict__ |= {"chance": chance, "chain": chain}
            if self.options.ghosts:
                self.__dict__["ghosts"] = ghosts
            if self.options.phases:
                self.__dict__["stage"] = stage

    @property
    def n(self) -> int:
        """Number of vertices so far."""
        count: int = self._so_far()
        return count

    @property
    def log(self) -> list[int]:
        """Entries that have not been decoded."""
        return self._log

    def _find_entry(
        self, block: Block, numbers: Mapping[str, Sequence[int]], n: int
    ) -> LogEntry | None:
        """Return the log entry of a chain; None if anything about it is unusual."""
        known = self._entries.get(block)
        if known is None:
            return None
        plain, full = known
        is_fit = numbers.keys() <= set(full.names) and numbers.keys() >= set(plain.names)
        if not is_fit or any(len(of_all) != n for of_all in numbers.values()):
            return None
        return plain if len(numbers) == len(plain.names) else full

    def concurrent(self, *branches: Callable[[], Any]) -> list[Any]:
        """Run all branches from the same depth; continue at the maximum depth of their ends."""
        return self.map(operator.call, branches)

    def map(self, function: Callable[..., Any], *lists: Iterable[Any]) -> list[Any]:
        """Do the same as `concurrent`, without one function per element."""
        add, results = self._log.append, []
        add(OPEN)
        for items in zip(*lists, strict=True):
            results.append(require_result(function(*items)))
            add(BRANCH)
        add(CLOSE)
        return results

    def fork(self, *branches: Any) -> Any:
        """Return the request of a fork; see CallWriter."""
        self.n_open += 1
        return _new(Fork, (branches, ""))

    def stage(self) -> StageRequest:
        """Do nothing, if stages do not count; otherwise a generated function replaces this."""
        return SOMEWHERE

    def ghosts(self, n: int) -> None:
        """Do nothing, if ghosts do not count; otherwise a generated function replaces this."""

    def note(self, event: tuple[int, ...]) -> None:
        """Log an event of fibers: RESUME, FORK or END.

        The faster `extend` of the list replaces this method.
        """
        self._log.extend(event)

    def start_next_segment(self) -> None:
        """Start the next graph segment."""
        self.n_segments += 1
        self.first_of_segment = self.n
        self.note((SEGMENT,))

    def check_joined(self) -> None:
        """Raise ProgramError for a request that no program yielded."""
        self.n_open += self._opened()
        super().check_joined()

    def find_phases(self, fibers: Sequence[int]) -> list[int]:
        """Return the current phase of each fiber."""
        self._decode()
        return [
            extract_phase(int(counter)) for counter in self._decoder.arrays.fibers[list(fibers)]
        ]

    def cut(self) -> RecordedPiece:
        """Return all calls since the last cut.

        Raises:
            ProgramError: for an invalid call.
        """
        self._decode()
        check_fault(self._decoder.fault)
        return self._decoder.cut()

    @property
    def feeds(self) -> Feeds:
        """Types whose vertices are arguments of other types', in the decoded part of the log."""
        return self._decoder.feeds

    def _decode(self) -> None:
        """Decode the log; raise TypeError for anything but 32-bit integers."""
        if self._log:
            entries = pack_numbers(self._log)
            self._log.clear()
            self._decoder.take(entries)


# Attributes that a program reaches as p.NAME, so no block can have these names.
OWN_NAMES = frozenset(dir(Recorder)) | {
    *(
        "rules",
        "options",
        "most_vertices",
        "first_of_segment",
        "n_segments",
        "is_checked",
        "n_open",
    ),
}


class CheckedRecorder(Recorder):
    """Recorder that checks every call immediately, and reports the line of an invalid one."""

    def __init__(self, rules: Rules, text: CallText, n_instances: int, decoder: Decoder) -> None:
        super().__init__(rules, text, n_instances, decoder, is_checked=True)
        for name, shape in rules.shapes.items():
            self.__dict__[name] = self._make_checked_call(shape, self.__dict__[name])

    def __getattr__(self, name: str) -> Block:
        raise ProgramError(
            f"{find_location(sys._getframe(1))} calls an unknown block {name}; choose one of"
            f" {', '.join(sorted(self.__dict__['rules'].shapes))}"
        )

    def _make_checked_call(self, shape: BlockShape, add: Block) -> Block:
        """Return a function that checks a call of a block, and records it."""

        def call(*operands: Any, **numbers: int) -> Any:
            self._check_given(shape, operands, numbers)
            vertex = add(*operands, **numbers)
            self._decode()
            fault = self._decoder.fault
            if fault != FINE:
                self._refuse(fault, shape, operands, vertex)
            return vertex

        return call

    def _check_given(
        self, shape: BlockShape, operands: Sequence[Any], numbers: Mapping[str, Any]
    ) -> None:
        """Raise ProgramError for a call that a log cannot represent."""
        n, n_traced = len(operands), len(shape.operands)
        if shape.find_allowed_types(n) is None:
            raise _make_call_error(shape, f"with {n} operands, but it was traced with {n_traced}")
        for k, operand in enumerate(operands):
            if type(operand) is not int or not 0 <= operand < self.n:
                raise _make_call_error(
                    shape, f"with operand {k} {operand!r}; expected the result of a block"
                )
        if self.n >= self.most_vertices:
            raise _make_call_error(
                shape,
                f"after {self.n} blocks; expected at most {MAX_VERTICES} blocks per instance; end"
                " its loop",
            )
        for name, number in numbers.items():
            if not (isinstance(number, Integral) and SMALLEST <= int(number) <= LARGEST):
                reason = f"with {name}={number!r}; expected an integer of at most 32 bits"
                raise _make_call_error(shape, reason)
        if not shape.pulls <= numbers.keys() <= set(self.rules.names):
            raise _make_call_error(
                shape,
                f"with the numbers {', '.join(sorted(numbers)) or 'none'}; it needs"
                f" {', '.join(sorted(shape.pulls)) or 'none'} and accepts"
                f" {', '.join(self.rules.names) or 'none'}",
            )

    def _refuse(
        self, fault: int, shape: BlockShape, operands: Sequence[int], vertex: int
    ) -> NoReturn:
        """Raise ProgramError for an invalid call.

        Args:
            vertex: the decoded vertex of the call.
        """
        types, counters = self._decoder.arrays.types, self._decoder.arrays.counters
        if fault == LACKING:
            raise _make_call_error(shape, "with a negative number; expected the index of a row")
        if fault not in (MISFIT, BACKWARD):
            check_fault(fault)
        own = int(counters[vertex])
        for k, (operand, fits) in enumerate(
            zip(operands, shape.find_allowed_types(len(operands)) or (), strict=True)
        ):
            if int(types[operand]) not in fits:
                raise _make_call_error(
                    shape,
                    f"with other shapes than traced: operand {k} lacks a state that it reads; pass"
                    " a block that scatters all of them",
                )
            of_operand = int(counters[operand])
            if of_operand >= own:
                raise _make_call_error(
                    shape,
                    f"at depth {extract_depth(own)} of phase {extract_phase(own)}, but operand {k}"
                    f" has depth {extract_depth(of_operand)} of phase {extract_phase(of_operand)};"
                    " read concurrent results only after their join",
                )
        raise AssertionError(f"a call of {shape.name} has the unknown error code {fault}")

    def fork(self, *branches: Any) -> Any:
        """Return the request of a fork; see CallWriter."""
        return CallWriter.fork(self, *branches)

    def stage(self) -> StageRequest:
        """Start the next phase, if stages count."""
        location = find_location(sys._getframe(1))
        if self.options.phases:
            self.note((PHASE,))
            self._decode()
            if self._decoder.fault != FINE:
                raise ProgramError(f"{location}: expected at most {MAX_PHASES} stages; remove one")
        return StageRequest(location)

    def ghosts(self, n: int) -> None:
        """Advance the counter, if ghosts count; nothing runs."""
        if n < 0:
            raise ProgramError(
                f"{find_location(sys._getframe(1))} expected at least 0 ghosts, got {n}"
            )
        if self.options.ghosts:
            self.note((GHOSTS, n))


def _make_call_error(shape: BlockShape, reason: str) -> ProgramError:
    return ProgramError(f"{find_location(sys._getframe(1))} calls {shape.name} {reason}")


def _refuse() -> NoReturn:
    raise ProgramError("a program calls blocks endlessly")
