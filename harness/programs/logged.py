"""The recorder that looks at nothing: whatever happens becomes an entry of one log.

Entries are decoded, and calls proved, all at once (harness.programs.decode): when a round ends
whose values have to be computed, or at the end of the mini-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from harness.errors import ProgramError
from harness.programs.call_text import CallText, Entry
from harness.programs.counter import phase_of
from harness.programs.decode import (
    BACKWARD,
    FAULT,
    FINE,
    LACKING,
    MISFIT,
    PHASES,
    TOO_MANY,
    UNKNOWN,
)
from harness.programs.decoder import Decoder
from harness.programs.log import (
    BRANCH,
    CLOSE,
    OPEN,
)
from harness.programs.packing import packed
from harness.programs.pieces import Piece
from harness.programs.recorder import Recorder, Rules
from harness.programs.taint import Feeds
from harness.programs.verify import Fitting
from harness.programs.writer import Block, Fork, Stage, Writer, finished

SOMEWHERE = Stage("")
WRONG = {
    UNKNOWN: "a block is called with what no block computed",
    TOO_MANY: "a block is called with another number of operands than traced",
    MISFIT: "a block is called with other shapes than traced",
    BACKWARD: "a block reads what is as deep as itself",
    LACKING: "a block is called without a number that it needs",
    PHASES: "a program has too many stages",
}
LONGEST, SHORTEST = 2**31, -(2**31)
_new = tuple.__new__  # a third of what a named tuple's own takes


class LoggedRecorder(Recorder):
    """Tells that something is wrong, and not where.

    decoder: of an earlier mini-batch, whose memory is used again; what that recorded is lost.
    """

    def __init__(
        self,
        rules: Rules,
        text: CallText,
        fitting: Fitting,
        n_instances: int,
        decoder: Decoder | None = None,
    ) -> None:
        super().__init__(rules, n_instances, is_checked=False)
        self._log: list[int] = []
        slowly, bare = partial(Writer.chain, self), dict[Block, Entry]()
        functions = (_refuse, slowly, self._entry, bare, SOMEWHERE)
        made = text.make(self._log, self.most_vertices, *functions)
        self._so_far, self._opened, chance, ghosts, stage, chain, blocks = made
        self.__dict__ |= blocks | {"chance": chance, "chain": chain, "note": self._log.extend}
        if rules.options.ghosts:
            self.__dict__["ghosts"] = ghosts
        if rules.options.phases:
            self.__dict__["stage"] = stage
        self._entries: dict[Block, tuple[Entry, Entry]] = {
            block: (text.plain[name], text.full[name]) for name, block in blocks.items()
        }
        bare |= {block: plain for block, (plain, _) in self._entries.items() if not plain.names}
        if decoder is None:
            decoder = Decoder(rules, text, fitting, n_instances)
        else:
            decoder.begin(rules, n_instances)
        self._decoder = decoder

    @property
    def n(self) -> int:
        """Vertices so far."""
        found: int = self._so_far()
        return found

    def _entry(self, block: Block, numbers: Mapping[str, Sequence[int]], n: int) -> Entry | None:
        """How a chain stands in the log; None where there is something odd about it."""
        known = self._entries.get(block)
        if known is None:
            return None
        plain, full = known
        is_fit = numbers.keys() <= set(full.names) and numbers.keys() >= set(plain.names)
        if not is_fit or any(len(of_all) != n for of_all in numbers.values()):
            return None
        return plain if len(numbers) == len(plain.names) else full

    def concurrent(self, *branches: Callable[[], Any]) -> list[Any]:
        """All start at the same depth; afterwards it is that of the deepest."""
        add, results = self._log.append, []
        add(OPEN)
        for branch in branches:
            results.append(finished(branch(), "concurrent"))
            add(BRANCH)
        add(CLOSE)
        return results

    def map(self, function: Callable[..., Any], *lists: Iterable[Any]) -> list[Any]:
        """As `concurrent`, without a function for every element."""
        add, results = self._log.append, []
        add(OPEN)
        for one in zip(*lists, strict=True):
            results.append(finished(function(*one), "concurrent"))
            add(BRANCH)
        add(CLOSE)
        return results

    def fork(self, *branches: Any) -> Any:
        """See Writer."""
        self.n_open += 1
        return _new(Fork, (branches, ""))

    def stage(self) -> Stage:
        """Nothing, where stages do not count; else there is a function in its place."""
        return SOMEWHERE

    def ghosts(self, n: int) -> None:
        """Nothing, where ghosts do not count; else there is a function in its place."""

    def note(self, event: tuple[int, ...]) -> None:
        """See Recorder; that of the list itself, which is faster, takes its place."""
        self._log.extend(event)

    def check_joined(self) -> None:
        """Raise ProgramError for a request that no program yielded."""
        self.n_open += self._opened()
        super().check_joined()

    def phases_of(self, fibers: Sequence[int]) -> list[int]:
        """The phase that each fiber is in."""
        self._decode(self._log)
        return [phase_of(int(counter)) for counter in self._decoder.fibers[list(fibers)]]

    def cut(self) -> Piece:
        """All calls since the last time that this was asked for.

        Raises ProgramError where one does not fit.
        """
        self._decode(self._log)
        check_fault(int(self._decoder.state[FAULT]))
        return self._decoder.cut()

    def feeds(self) -> Feeds:
        """Of what the log holds; a program that is wrong may have given anything."""
        try:
            self._decode(self._log)
        except TypeError:
            self._decode([_number(found) for found in self._log])
        return self._decoder.feeds

    def _decode(self, log: Sequence[int]) -> None:
        """Raises TypeError where anything in the log is no number of 32 bits."""
        if not log:
            return
        entries = packed(log)
        self._log.clear()
        self._decoder.take(entries)

    def numbers_of(self, name: str, vertices: Sequence[int]) -> list[int]:
        """External numbers of any vertices, -1 where there is none."""
        place = self.rules.names.index(name)
        found: list[int] = self._decoder.pulls[place, list(vertices)].tolist()
        return found


def inside(recorder: LoggedRecorder) -> tuple[list[int], Decoder]:
    """What was not decoded yet, and what decodes it; attributes' names are those of blocks."""
    return recorder._log, recorder._decoder


def check_fault(fault: int) -> None:
    """Raise ProgramError for what is wrong with a call (harness.programs.decode)."""
    if fault != FINE:
        raise ProgramError(WRONG[fault])


def _refuse() -> NoReturn:
    raise ProgramError("a program calls blocks without end")


def _number(found: object) -> int:
    """What stands in a log, or -1."""
    return found if type(found) is int and SHORTEST <= found < LONGEST else -1
