"""Choice of a policy by measuring: all candidates with their tried or predicted times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Stopwatch = Callable[[Callable[[], object]], float]  # calls the work once and returns its seconds
Report = Callable[[str], None]  # receives a progress line
Ended = Literal["clear", "equal", "time"]

_ENDED = {
    "clear": "all others are slower",
    "equal": "the others are at most 1.5% faster",
    "time": "not clear within the time limit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Candidate for `policy=auto`: one policy at one granularity.

    All times are seconds per mini-batch.

    Attributes:
        why_not: Reason why it cannot be a candidate here, in which case all else is unknown.
        n_batches: Number of batches of the first mini-batch.
        scheduling_s: Time of construct and schedule, including the memory layout.
        predicted_s: Scheduling time plus the marginal cost of each batch by type.
        tried_s: Median time of whole mini-batches over n_tries repetitions; None if the prediction
            excluded the candidate.
        behind: Median slowdown relative to the chosen candidate, as a fraction of its time, over
            the repetitions that both ran.
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
        return f"{self.policy} at {self.granularity} granularity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Choice among candidates: the fastest, or an equally fast one with fewer batches.

    Attributes:
        n_mini_batches: Number of mini-batches on which they were tried.
        n_tries: Repetitions of the candidates that remained until the end.
        ended: Reason for ending: "clear" if the fastest was clear, "equal" if the others were
            known to be as fast, "time" if the time was over before.

    Raises:
        ValueError: No candidate was tried.
    """

    candidates: tuple[Candidate, ...]
    n_mini_batches: int
    n_tries: int
    ended: Ended | None = None

    def __post_init__(self) -> None:
        if not any(candidate.tried_s is not None for candidate in self.candidates):
            raise ValueError("no candidate was tried")

    @property
    def tried(self) -> list[Candidate]:
        """Tried candidates, the fastest first; equally fast ones in their original order."""
        tried = [candidate for candidate in self.candidates if candidate.tried_s is not None]
        return sorted(tried, key=lambda candidate: candidate.tried_s or 0.0)

    @property
    def chosen(self) -> Candidate:
        """The candidate marked as chosen, or else the fastest."""
        return next(
            (candidate for candidate in self.candidates if candidate.is_chosen), self.tried[0]
        )

    @property
    def words(self) -> str:
        chosen = self.chosen
        others = [candidate for candidate in self.tried if candidate is not chosen]
        text = f"chose {chosen.words}: {(chosen.tried_s or 0.0) * 1e3:.3g} ms per mini-batch"
        if others:
            second = others[0]
            text += f", {second.words} {(second.tried_s or 0.0) * 1e3:.3g}"
        n_predicted = sum(candidate.predicted_s is not None for candidate in self.candidates)
        text += f"; {len(self.tried)} of {n_predicted} candidates tried"
        return text + ("" if self.ended is None else f", {_ENDED[self.ended]}")
