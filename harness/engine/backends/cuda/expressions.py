"""Elementwise operators as expressions of generated kernels, and the functions they call.

The backend's own table of operators: tests hold every entry against torch's.
"""

from __future__ import annotations

from harness.engine.lowering.operations import Operation

EXPRESSIONS = {
    "add": "{0} + {1}",
    "sum": "{sum}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "bias": "{0} + {1}",
    "neg": "-{0}",
    "scale": "{value!r} * {0}",
    "shift": "{value!r} + {0}",
    "sigmoid": "sigmoid({0})",
    "tanh": "tanh({0})",
    # Comparisons, unlike a GPU's minimum and maximum, keep what is not a number.
    "relu": "tl.where({0} <= 0.0, 0.0, {0})",
    "exp": "tl.exp({0})",
    "log": "tl.log({0})",
    "square": "{0} * {0}",
    "sqrt": "tl.sqrt({0})",
    "sigmoid_gradient": "{0} * {1} * (1.0 - {1})",
    "tanh_gradient": "{0} * (1.0 - {1} * {1})",
    "relu_gradient": "tl.where({1} > 0.0, {0}, 0.0)",
}


def write_expression(one: Operation) -> str:
    """Return an operation as text."""
    total = " + ".join(one.operands)
    return EXPRESSIONS[one.operator].format(*one.operands, value=one.constant, sum=total)


# tanh as a rational function, fitted for harness/engine/cpu_kernels/fast_math.py, where its error
# is derived: arithmetic alone, which the interpreter knows as well as the compiler.
FUNCTIONS = """
@triton.jit
def tanh(x):
    x = tl.where(x < -8.0, -8.0, tl.where(x > 8.0, 8.0, x))
    s = x * x
    p = -2.231464612930298e-8 + s * (6.365524581083284e-11 + s * -1.156428313665701e-13)
    p = 3.1493643471602792e-3 + s * (1.1642439822295911e-5 + s * p)
    p = 0.9999999982248846 + s * (0.1312434943208993 + s * p)
    q = 0.024674998906289915 + s * 2.612973711282404e-4
    q = 1.0 + s * (0.46457680935241213 + s * q)
    return x * p / q


@triton.jit
def sigmoid(x):
    return 0.5 * tanh(0.5 * x) + 0.5
"""
