"""What a system tells of itself beside its results, checked against harness/contracts/system.py.

Each raises TypeError in one line for what the contract does not allow: the method, what it
returned, and what it may return. Found only when the record is made, it would name no method.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import NoReturn

from harness.contracts.system import System

_MOST_SHOWN = 100  # characters of what was returned

_TEXTS = "a dict of texts by name"
_COUNT = "a whole number of at least 0, or None"
_SHARE = "a number from 0 to 1, or None"


def told_versions(system: System) -> dict[str, str]:
    """The versions of what a system stands on."""
    return _texts(system, "versions", system.versions())


def told_in_force(system: System) -> dict[str, str]:
    """How a system runs."""
    return _texts(system, "in_force", system.in_force())


def told_n_compilations(system: System) -> int | None:
    """How many programs were compiled so far; None where none ever is."""
    return _count(system, "n_compilations", system.n_compilations())


def told_peak_memory_bytes(system: System) -> int | None:
    """The peak of memory that only the framework sees."""
    return _count(system, "peak_memory_bytes", system.peak_memory_bytes())


def told_moving_share(system: System) -> float | None:
    """Which share of the runs since last asked only moved data."""
    value: object = system.moving_share()
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
        _refuse(system, "moving_share", value, _SHARE)
    return float(value)


def _texts(system: System, method: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        _refuse(system, method, value, _TEXTS)
    if not all(isinstance(one, str) for pair in value.items() for one in pair):
        _refuse(system, method, value, _TEXTS)
    return dict(value)


def _count(system: System, method: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        _refuse(system, method, value, _COUNT)
    return int(value)


def _refuse(system: System, method: str, value: object, allowed: str) -> NoReturn:
    shown = " ".join(repr(value).split())
    shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."
    module = type(system).__module__
    raise TypeError(f"{module}: {method}() returned {shown}; it may return {allowed}")
