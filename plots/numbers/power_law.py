"""How a quantity grows: y = c x^b, fitted by least squares of logarithms, with how sure b is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Student's t that 95 % lie within, by degrees of freedom; of more, the last: a little too wide.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
MOST_FITTED = 4  # the largest x: at small ones fixed costs hide how something grows


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """factor x^exponent. low, high: 95 % interval of the exponent; None from two points.

    start, end: the x between which it was fitted.
    """

    factor: float
    exponent: float
    low: float | None
    high: float | None
    start: float
    end: float

    def at(self, x: float) -> float:
        """Its value."""
        return float(self.factor * x**self.exponent)

    @property
    def words(self) -> str:
        """The exponent, and its interval in brackets."""
        text = f"{self.exponent:.2f}"
        if self.low is None or self.high is None:
            return text
        return f"{text} [{self.low:.2f}, {self.high:.2f}]"


def fitted(xs: Sequence[float], ys: Sequence[float]) -> PowerLaw | None:
    """The law through the MOST_FITTED largest x; None from fewer than two, or a y that is not > 0.

    The interval takes logarithms of y for equally uncertain and independent.
    """
    pairs = sorted(zip(xs, ys, strict=True))[-MOST_FITTED:]
    if len(pairs) < 2 or any(x <= 0 or y <= 0 for x, y in pairs):
        return None
    x, y = np.log(np.array(pairs)).T
    away = x - x.mean()
    spread = float((away**2).sum())
    if spread == 0:
        return None
    exponent = float((away * y).sum() / spread)
    rest = y - y.mean() - exponent * away
    factor = float(np.exp(y.mean() - exponent * x.mean()))
    n_free = len(pairs) - 2
    reach = None
    if n_free:
        deviation = float(np.sqrt((rest**2).sum() / n_free / spread))
        reach = T_95[min(n_free, len(T_95)) - 1] * deviation
    low, high = (None, None) if reach is None else (exponent - reach, exponent + reach)
    return PowerLaw(factor, exponent, low, high, pairs[0][0], pairs[-1][0])
