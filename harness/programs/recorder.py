"""Records what the programs of a mini-batch call, and the depth at which they do.

There are two that record the same: one that looks at nothing and is fast
(harness.programs.logged), and one that looks at every call and knows its line
(harness.programs.checked).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.programs.blocks import BlockShape
from harness.programs.log import ROUND
from harness.programs.pieces import Piece
from harness.programs.taint import TAINTED, Feeds
from harness.programs.writer import Stage, Writer

MOST_VERTICES = 1_000_000  # of one instance: a program that calls more is taken for endless


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """What is counted while a program runs.

    phases: the program's stages part its depths; else all of it is one. ghosts: counted, or left
    out. hoisting: blocks that no recurrent value reaches have a static depth. restart: depths begin
    anew with every round, or go on.
    """

    phases: bool = True
    ghosts: bool = True
    hoisting: bool = True
    restart: bool = True


@dataclass(frozen=True, slots=True)
class Rules:
    """What is the same for all recordings of a model until more is known of it.

    shapes: of the blocks, by name. names: of the numbers that any function needs. static: depth of
    every type that does not count (harness.programs.taint).
    """

    shapes: Mapping[str, BlockShape]
    names: tuple[str, ...]
    static: Sequence[int]
    options: RecordingOptions

    @property
    def base(self) -> int:
        """Hoisted blocks come before all others."""
        return 1 + max(self.static, default=TAINTED)


class Recorder(Writer):
    """Values are numbers of vertices, in the order of recording.

    Fibers are numbers, too: instance k begins as fiber k. first_of_round: the first vertex of the
    round that is recorded now. n_rounds: that have ended.
    """

    def __init__(self, rules: Rules, n_instances: int, *, is_checked: bool) -> None:
        super().__init__(is_checked=is_checked)
        self.rules, self.options = rules, rules.options
        self.most_vertices = MOST_VERTICES * max(1, n_instances)
        self.first_of_round = self.n_rounds = 0

    @property
    @abstractmethod
    def n(self) -> int:
        """Vertices so far."""

    @abstractmethod
    def note(self, event: tuple[int, ...]) -> None:
        """Fibers: one goes on (RESUME), forks (FORK), has ended (END); see harness.programs.log."""

    @abstractmethod
    def stage(self) -> Stage:
        """Depths begin anew in the next phase."""

    @abstractmethod
    def phases_of(self, fibers: Sequence[int]) -> list[int]:
        """The phase that each fiber is in."""

    def next_round(self) -> None:
        """What is recorded from now on runs behind all that was."""
        self.n_rounds += 1
        self.first_of_round = self.n
        self.note((ROUND,))

    @abstractmethod
    def cut(self) -> Piece:
        """All calls since the last time that this was asked for.

        Raises ProgramError where one does not fit.
        """

    @abstractmethod
    def feeds(self) -> Feeds:
        """Which type's vertices are arguments of which type's, as far as that can be told."""

    @abstractmethod
    def numbers_of(self, name: str, vertices: Sequence[int]) -> list[int]:
        """External numbers of any vertices, -1 where there is none."""
