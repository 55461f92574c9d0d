"""What a system chose by measuring, and why: what all candidates take, tried or predicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Stopwatch = Callable[[Callable[[], object]], float]  # does the work once, and returns its seconds
Tell = Callable[[str], None]  # takes a line for people on what is done now
Ended = Literal["clear", "equal", "time"]

_ENDED = {
    "clear": "all others behind",
    "equal": "the others no more than 1.5 % faster",
    "time": "not clear when time was over",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One policy at one granularity.

    why_not: why it is no candidate here; then nothing else is known.
    n_batches: of the first mini-batch. scheduling_s: construct and schedule, its layout included.
    predicted_s: scheduling, and each batch at what one more batch of its type costs. tried_s: whole
    mini-batches, the median of n_tries turns; None where the prediction was enough to leave it out.
    behind: how much longer it took than the one that was chosen, as a part of that: the median over
    the turns that both ran. Seconds are per mini-batch.
    """

    policy: str
    granularity: str
    why_not: str | None = None
    n_batches: int | None = None
    scheduling_s: float | None = None
    predicted_s: float | None = None
    tried_s: float | None = None
    n_tries: int | None = None
    behind: float | None = None
    is_chosen: bool = False

    @property
    def words(self) -> str:
        """Its name for people."""
        return f"{self.policy} at {self.granularity} granularity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was taken of the candidates: the fastest, or one as fast that has fewer batches.

    candidates: by granularity and policy. n_mini_batches: on which they were tried, in n_tries
    turns of those that ran to the end. ended: the fastest was clear, or others were known to be as
    fast, or time was over before.

    Raises ValueError where none was tried.
    """

    candidates: tuple[Candidate, ...]
    n_mini_batches: int
    n_tries: int
    ended: Ended | None = None

    def __post_init__(self) -> None:
        if not any(one.tried_s is not None for one in self.candidates):
            raise ValueError("no candidate was tried")

    @property
    def tried(self) -> list[Candidate]:
        """Those that were tried, the fastest first; of equal ones the first of the candidates."""
        found = [one for one in self.candidates if one.tried_s is not None]
        return sorted(found, key=lambda one: one.tried_s or 0.0)

    @property
    def chosen(self) -> Candidate:
        """The one that says so, else the fastest."""
        return next((one for one in self.candidates if one.is_chosen), self.tried[0])

    @property
    def words(self) -> str:
        """What was chosen, and why, in one line."""
        chosen = self.chosen
        others = [one for one in self.tried if one is not chosen]
        text = f"chose {chosen.words}: {(chosen.tried_s or 0.0) * 1e3:.3g} ms a mini-batch"
        if others:
            second = others[0]
            text += f", {second.words} {(second.tried_s or 0.0) * 1e3:.3g}"
        n_predicted = sum(one.predicted_s is not None for one in self.candidates)
        text += f"; {len(self.tried)} of {n_predicted} candidates tried"
        return text + ("" if self.ended is None else f", {_ENDED[self.ended]}")
