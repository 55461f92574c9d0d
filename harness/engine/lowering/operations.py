"""Elementwise operators as data, the same for all backends: each spells them in its own code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """A value computed position by position: x0, x1, ... are inputs, v0, v1, ... earlier values.

    constant: the number that `scale` and `shift` take.
    """

    name: str
    operator: str
    operands: tuple[str, ...]
    constant: float = 0.0
