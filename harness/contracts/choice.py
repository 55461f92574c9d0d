"""What a system chose by measuring, and why: what all candidates take, tried or predicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Stopwatch = Callable[[Callable[[], object]], float]  # does the work once, and returns its seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One policy at one granularity.

    why_not: why it is no candidate here; then nothing else is known.
    n_batches: of the first mini-batch. scheduling_s: construct and schedule, its layout included.
    predicted_s: scheduling, and each batch at what one more batch of its type costs. tried_s: whole
    mini-batches; None where the prediction was enough to leave it out. Seconds are per mini-batch.
    """

    policy: str
    granularity: str
    why_not: str | None = None
    n_batches: int | None = None
    scheduling_s: float | None = None
    predicted_s: float | None = None
    tried_s: float | None = None

    @property
    def words(self) -> str:
        """Its name for people."""
        return f"{self.policy} at {self.granularity} granularity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was taken of the candidates: the one that was tried and took least.

    candidates: by granularity and policy. n_mini_batches: on which they were tried, each the
    fastest of n_tries.

    Raises ValueError where none was tried.
    """

    candidates: tuple[Candidate, ...]
    n_mini_batches: int
    n_tries: int

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
        """The fastest."""
        return self.tried[0]

    @property
    def words(self) -> str:
        """What was chosen, and why, in one line."""
        best, *others = self.tried
        assert best.tried_s is not None
        text = f"chose {best.words}: {best.tried_s * 1e3:.3g} ms a mini-batch"
        if others:
            second = others[0]
            text += f", {second.words} {(second.tried_s or 0.0) * 1e3:.3g}"
        n_predicted = sum(one.why_not is None for one in self.candidates)
        return f"{text}; {len(self.tried)} of {n_predicted} candidates tried"
