"""tanh, sigmoid and exp that a compiler can vectorise: no table, no branch, few units in the last
place.

tanh x is x P(x^2) / Q(x^2) with P of degree 6 and Q of degree 3, fitted by iteratively reweighted
least squares to minimise the relative error on [-8, 8] (2e-9 in exact arithmetic); beyond, x is
cut off, where tanh is within 3e-7 of 1. In float32 the relative error stays under 5e-7
(tests/engine/test_fast_math.py).
exp x is 2^n exp r with x = n log 2 + r and |r| <= log(2) / 2, exp r by its Taylor sum to r^6
(relative error 1e-7, and under 5e-7 with all roundings); x is cut off at -87 and 88, inside
float32's range.
"""

from __future__ import annotations

import numpy as np

from harness.compiler.registry import helper

F = np.float32
LIMIT = F(8.0)
P = (
    *(F(0.9999999982248846), F(0.1312434943208993), F(3.1493643471602792e-3)),
    *(F(1.1642439822295911e-5), F(-2.231464612930298e-8), F(6.365524581083284e-11)),
    F(-1.156428313665701e-13),
)
Q = (F(1.0), F(0.46457680935241213), F(0.024674998906289915), F(2.612973711282404e-4))
HALF, ONE = F(0.5), F(1.0)
LOWEST, HIGHEST = F(-87.0), F(88.0)
# log 2 in two parts, the first exact in few bits, so that n times it is exact too.
LOG2_E, LOG_2_HIGH, LOG_2_LOW = F(1.4426950408889634), F(0.693359375), F(-2.12194440e-4)
E = (ONE, ONE, F(1 / 2), F(1 / 6), F(1 / 24), F(1 / 120), F(1 / 720))
_E2, _E3, _E4, _E5, _E6 = E[2:]
EXPONENT_BIAS, MANTISSA_BITS = np.int32(127), np.int32(23)

# Contraction and reassociation let the loop vectorise; NaN and infinity keep their meaning.
FAST = ("contract", "reassoc", "nsz", "arcp")


@helper(fast=FAST)
def fast_exp(x: np.float32) -> np.float32:
    """e^x in float32; the power of two is written into the exponent's bits."""
    x = min(max(x, LOWEST), HIGHEST)
    n = np.floor(x * LOG2_E + HALF)
    r = x - n * LOG_2_HIGH
    r = r - n * LOG_2_LOW
    p = ONE + r * (ONE + r * (_E2 + r * (_E3 + r * (_E4 + r * (_E5 + r * _E6)))))
    power = (np.int32(n) + EXPONENT_BIAS) << MANTISSA_BITS
    return np.float32(p * np.int32(power).view(np.float32))
