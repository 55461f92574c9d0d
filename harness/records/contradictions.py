"""What a record that the worker wrote never says: the marks of an edit by hand, or of damage."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from harness.records.stats import passes_of

SAME = 1e-6  # relative: what is recomputed, by another version of NumPy


class Told(Protocol):
    """The parts of a record that depend on one another."""

    @property
    def status(self) -> str: ...
    @property
    def samples_s(self) -> tuple[float, ...]: ...
    @property
    def marked_samples_s(self) -> tuple[float, ...]: ...
    @property
    def n_mini_batches(self) -> int | None: ...
    @property
    def n_instances(self) -> int | None: ...
    @property
    def instances_per_s(self) -> float | None: ...
    @property
    def config(self) -> Mapping[str, Any]: ...


def contradictions(told: Told, trial: Mapping[str, Any], check: str | None) -> Iterator[str]:
    """Yield what cannot all be true of a trial, each in one line.

    trial: the point by its names, which the configuration tells, too. check: the oracle's verdict.
    """
    for name in ("samples_s", "marked_samples_s"):
        wrong = [x for x in getattr(told, name) if not (math.isfinite(x) and x >= 0)]
        if wrong:
            yield f"{name} has {wrong[0]!r}, which is no time"
            return
    for name, value in trial.items():
        if told.config.get(name, value) != value:
            yield f"trial.{name} is {value!r}, and config.{name} {told.config[name]!r}"
    if told.status == "ok":
        if check == "failed":
            yield "status is ok, and check failed"
        yield from _of_times(told)


def _of_times(told: Told) -> Iterator[str]:
    if not told.samples_s:
        yield "status is ok, and samples_s is empty"
        return
    if told.n_mini_batches is None or told.n_instances is None:
        yield "samples_s are told, and n_mini_batches or n_instances is not"
        return
    try:
        totals = sorted(passes_of(told.samples_s, told.n_mini_batches).sum(axis=1))
    except ValueError as error:
        yield str(error)
        return
    median = (totals[len(totals) // 2] + totals[~(len(totals) // 2)]) / 2
    said = told.instances_per_s
    found = told.n_instances / median if median > 0 else None
    if (said is None) != (found is None) or (
        said is not None and found is not None and not math.isclose(said, found, rel_tol=SAME)
    ):
        yield f"instances_per_s is {said}, and samples_s make it {found}"
