"""The words around a figure, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FigureText:
    """Words around the panels; `notes` are printed below, one paragraph each."""

    title: str
    subtitle: str
    x_label: str
    y_label: str
    notes: tuple[str, ...]
