"""Comparison of elementwise groups with NumPy, for every operator, addressing and width.

tanh, sigmoid and exp are compared with float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.engine.cpu_kernels.elementwise import (
    FAST,
    OPERATORS,
    WITH_CONSTANT,
    ColumnStore,
    Group,
    RowKind,
    compute_exp,
)
from dynbatch.harness.engine.lowering.plan import Operation
from tests.support.kernel_calls import (
    EXPECTED,
    GUARD,
    UNTOUCHED,
    Floats,
    computed,
    drawn,
    expected,
    group_of_one,
    run_group,
    text_of,
)

# Error bounds of the docstrings: relative for tanh and exp, absolute for sigmoid.
TANH_RELATIVE, SIGMOID_ABSOLUTE, EXP_RELATIVE = 5e-7, 3e-7, 5e-7


@compiled(fast=FAST)
def _exp_in_a_loop(x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Call exp as kernels that are not groups of operators do."""
    for k in range(len(x)):
        out[k] = compute_exp(x[k])


def _magnitudes() -> Floats:
    """Return both signs of magnitudes from denormal to huge, densely where the functions bend."""
    powers = np.logspace(-45, 38, 40_000)
    dense = np.concatenate([np.linspace(0, 10, 200_001), 8 + np.linspace(-1e-4, 1e-4, 101)])
    positive = np.concatenate([powers, dense]).astype(np.float32)
    return np.concatenate([positive, -positive])


def test_tanh_is_odd_and_keeps_its_relative_error_at_every_magnitude() -> None:
    x = _magnitudes()
    found, of_opposite = (computed("tanh", one[None])[0] for one in (x, -x))
    np.testing.assert_array_equal(of_opposite, -found)
    assert np.abs(found).max() <= 1.0 + 1e-7
    assert not found[x == 0].any()
    exact = np.tanh(x.astype(np.float64))
    normal, error = np.abs(x) >= np.finfo(np.float32).tiny, np.abs(found - exact)
    assert (error[normal] / np.abs(exact[normal])).max() <= TANH_RELATIVE
    # The error of denormal numbers is bounded by their spacing only.
    assert error[~normal].max() <= 2e-45


def test_sigmoid_keeps_its_absolute_error_and_range() -> None:
    x = _magnitudes()
    exact = 0.5 * (1.0 + np.tanh(0.5 * x.astype(np.float64)))
    sigmoid = computed("sigmoid", x[None])[0]
    assert np.abs(sigmoid - exact).max() <= SIGMOID_ABSOLUTE
    assert sigmoid.min() >= -1e-7
    assert sigmoid.max() <= 1.0 + 1e-7


@pytest.mark.parametrize("way", ["group", "loop"])
def test_exp_keeps_its_relative_error_and_stays_finite(way: str) -> None:
    ends = [0.0, np.inf, -np.inf]
    x = np.concatenate([np.linspace(-87, 88, 400_001), _magnitudes(), ends]).astype(np.float32)
    found = computed("exp", x[None])[0]
    if way == "loop":
        _exp_in_a_loop(x, found)
    exact = np.exp(np.clip(x.astype(np.float64), -87.0, 88.0))
    assert (np.abs(found - exact) / exact).max() <= EXP_RELATIVE
    assert np.isfinite(found).all()
    assert (found[x == 0] == 1.0).all()


WIDTHS = (1, 7, 8, 9, 16, 37, 300)
LANES = (8, 16)  # any CPU runs both
CONSTANT = -0.75
# Operators with one rounding, which equal NumPy's to the last bit, except for the sign of zero.
OF_ONE = ("neg", "relu", "square", "sqrt", "scale", "shift")
OF_TWO = ("bias", "add", "sub", "mul", "div", "relu_gradient")
# Relative to the result.
APPROXIMATE = {"tanh": TANH_RELATIVE, "exp": EXP_RELATIVE, "log": 3e-7}
# Relative to the first operand; the second one is in [0, 1] or [-1, 1] and does not enlarge it.
GRADIENTS = ("sigmoid_gradient", "tanh_gradient")
OTHERS = ("sigmoid", "sum")
SMALLEST = float(np.finfo(np.float32).smallest_subnormal)
TINY, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
POSITIVE = (
    *(0.0, SMALLEST, 3e-42, TINY / 2, TINY, 1e-20, 3e-5, 0.5, 1.0, 1.5, 2.0, 7.99, 8.0, 8.1, 16.5),
    *(87.0, 87.5, 88.0, 88.5, 89.0, 1e4, 2.0**31, 1e10, 1e19, 1e20, LARGEST / 2, LARGEST, np.inf),
)
EXTREME = np.array([*POSITIVE, *(-x for x in POSITIVE), np.nan], np.float32)


def in_rows(values: Floats, width: int) -> Floats:
    """Return values as rows; the first ones repeat to fill the last row."""
    return np.resize(values, (-(-len(values) // width), width))


def assert_exact(operator: str, *values: Floats, n_lanes: int) -> None:
    """Check operators with one rounding."""
    constants = (CONSTANT,) if operator in WITH_CONSTANT else ()
    found = computed(operator, *values, constant=CONSTANT, n_lanes=n_lanes)
    with np.errstate(over="ignore"):
        exact = expected(operator, *values, *constants).astype(np.float32)
    np.testing.assert_array_equal(found, exact)


def assert_near(found: Floats, exact: NDArray[np.float64], error: Any) -> None:
    """Check operators with several roundings; `error` is the largest allowed difference."""
    with np.errstate(all="ignore"):
        is_same = (found == exact.astype(np.float32)) | (np.isnan(found) & np.isnan(exact))
        is_near = np.abs(found - exact) <= error + 2 * SMALLEST
    wrong = ~(is_same | is_near)
    assert not wrong.any(), (found[wrong], exact[wrong])


def test_no_operator_is_left_out() -> None:
    tested = {*OF_ONE, *OF_TWO, *APPROXIMATE, *GRADIENTS, *OTHERS}
    assert tested == {*OPERATORS, *WITH_CONSTANT} == set(EXPECTED)


@pytest.mark.parametrize("n_lanes", LANES)
@pytest.mark.parametrize("width", WIDTHS)
def test_correctly_rounded_operators_match_numpy(width: int, n_lanes: int) -> None:
    pairs = [in_rows(values, width) for values in map(np.ravel, np.meshgrid(EXTREME, EXTREME))]
    for operator in OF_ONE:
        for values in (drawn(5, width), in_rows(EXTREME, width)):
            assert_exact(operator, values, n_lanes=n_lanes)
    for operator in OF_TWO:
        assert_exact(operator, drawn(5, width), drawn(width, 5).reshape(5, width), n_lanes=n_lanes)
        assert_exact(operator, *pairs, n_lanes=n_lanes)


@pytest.mark.parametrize("n_lanes", LANES)
@pytest.mark.parametrize("width", WIDTHS)
def test_approximate_operators_stay_within_error_bounds(width: int, n_lanes: int) -> None:
    for values in (3 * drawn(40, width), in_rows(EXTREME, width)):
        for operator, error in APPROXIMATE.items():
            found, exact = computed(operator, values, n_lanes=n_lanes), expected(operator, values)
            if operator == "tanh":  # its argument is clamped to 8
                exact = np.where(np.isinf(values), np.sign(values), exact)
            assert_near(found, exact, error * np.abs(exact))
        found = computed("sigmoid", values, n_lanes=n_lanes)
        assert_near(found, expected("sigmoid", values), SIGMOID_ABSOLUTE)


@pytest.mark.parametrize("n_lanes", LANES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("operator", GRADIENTS)
def test_gradients_are_near(operator: str, width: int, n_lanes: int) -> None:
    results = np.array([0.0, SMALLEST, 1e-30, 1e-3, 0.5, 0.999, 1 - 6e-8, 1.0, np.nan], np.float32)
    if operator == "tanh_gradient":
        results = np.concatenate([results, -results])
    for given_ in (drawn(50), EXTREME):
        dy, y = (in_rows(one, width) for one in map(np.ravel, np.meshgrid(given_, results)))
        found = computed(operator, dy, y, n_lanes=n_lanes)
        assert_near(found, expected(operator, dy, y), 2e-7 * np.abs(dy.astype(np.float64)))


@pytest.mark.parametrize("n_lanes", LANES)
@pytest.mark.parametrize("width", [1, 9, 16, 37])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_sums_are_taken_in_some_order(n: int, width: int, n_lanes: int) -> None:
    values = [drawn(4 + k, width)[:4] for k in range(n)]
    found, size = computed("sum", *values, n_lanes=n_lanes), sum(map(np.abs, values))
    assert_near(found, expected("sum", *values), n * 1e-7 * size)
    triples = [in_rows(one.ravel(), width) for one in np.meshgrid(*[EXTREME] * 3)]
    if n == 3:
        a, b, c = triples
        with np.errstate(all="ignore"):
            orders = [(a + b) + c, (a + c) + b, a + (b + c)]
        found = computed("sum", *triples, n_lanes=n_lanes)
        is_one = [(found == one) | (np.isnan(found) & np.isnan(one)) for one in orders]
        assert np.logical_or.reduce(is_one).all()


# --- rows ---


@pytest.mark.parametrize("n_lanes", LANES)
@pytest.mark.parametrize(("period", "n_periods"), [(1, 5), (7, 3), (8, 4), (16, 2), (37, 3)])
def test_shared_vector_restarts_at_every_matrix_row(
    period: int, n_periods: int, n_lanes: int
) -> None:
    group = Group(
        (RowKind.STRIDED, RowKind.SAME, RowKind.STRIDED),
        ((0, 0), (1, 0)),
        (Operation("v0", "bias", ("x0", "x1")),),
        (ColumnStore(2, 0, "v0"),),
        n_columns=1,
        ragged=period % n_lanes != 0,
        periodic=True,
    )
    n, width = 4, period * n_periods
    x, b = drawn(n, width), drawn(period)
    out = np.full((n, width + GUARD), UNTOUCHED)
    run_group(group, (x, b, out), (width, period, 0), n, n_lanes)
    np.testing.assert_array_equal(out[:, :width], x + np.tile(b, n_periods))
    assert (out[:, width:] == UNTOUCHED).all()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_result_may_take_the_place_of_an_operand(width: int) -> None:
    x, y = drawn(3, width), drawn(4, width)[:3]
    summed = x + y
    group = group_of_one("add", 2, 0.0, ragged=width % LANES[0] != 0)
    run_group(group, (x, y, x), (width, 0), 3, LANES[0])
    np.testing.assert_array_equal(x, summed)


# --- groups of any operators ---

# Operators that enlarge a rounding error at most by the size of their operands.
SMOOTH = {
    **dict.fromkeys(("neg", "tanh", "sigmoid", "relu", "scale", "shift"), 1),
    **dict.fromkeys(("add", "sub", "mul", "bias", "tanh_gradient", "sigmoid_gradient"), 2),
    "sum": 3,
}


@st.composite
def groups(draw: st.DrawFn) -> Group:
    """Draw a group of a few rows whose results go to separate rows."""
    kinds = draw(st.lists(st.sampled_from(list(RowKind)), min_size=1, max_size=4))
    places = st.tuples(st.integers(0, len(kinds) - 1), st.integers(0, 1))
    loads = draw(st.lists(places, min_size=1, max_size=5, unique=True))
    operations: list[Operation] = []
    for k in range(draw(st.integers(1, 6))):
        operator = draw(st.sampled_from(sorted(SMOOTH)))
        known = [*(f"x{i}" for i in range(len(loads))), *(f"v{i}" for i in range(k))]
        operands = tuple(draw(st.sampled_from(known)) for _ in range(SMOOTH[operator]))
        constant = draw(st.sampled_from((-0.5, 0.25)))
        operations.append(Operation(f"v{k}", operator, operands, constant))
    names = st.sampled_from([one.name for one in operations])
    stores = [
        ColumnStore(len(kinds) + k, draw(st.integers(0, 1)), name, draw(st.booleans()))
        for k, name in enumerate(draw(st.lists(names, min_size=1, max_size=3)))
    ]
    rows = (*kinds, *[RowKind.STRIDED] * len(stores))
    return Group(rows, tuple(loads), tuple(operations), tuple(stores), n_columns=2, ragged=True)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(groups(), st.sampled_from(WIDTHS), st.integers(0, 4), st.sampled_from(LANES))
def test_any_group_matches_its_operators(group: Group, width: int, n: int, n_lanes: int) -> None:
    random = np.random.default_rng(width)
    index = np.array([5, 0, 5, 2], np.int64)
    columns, operands, sources = (3, 0), list[NDArray[Any]](), list[Floats]()
    n_inputs = len(group.rows) - len(group.stores)
    for kind in group.rows:
        sources.append(random.uniform(-2, 2, (6, width + 3)).astype(np.float32))
        operands += [sources[-1], index] if kind is RowKind.INDEXED else [sources[-1]]
    before = [one.copy() for one in sources]
    run_group(group, operands, (width, *(4 * column for column in columns)), n, n_lanes)

    def rows_of(k: int, column: int) -> NDArray[np.float64]:
        kind, start = group.rows[k], columns[column]
        rows = {RowKind.STRIDED: np.arange(n), RowKind.INDEXED: index[:n]}
        chosen = rows.get(kind, np.zeros(n, np.int64))
        return before[k][chosen, start : start + width].astype(np.float64)

    values: dict[str, Any] = {f"x{k}": rows_of(*load) for k, load in enumerate(group.loads)}
    for one in group.operations:
        constants = (one.constant,) if one.operator in WITH_CONSTANT else ()
        inputs = [values[operand] for operand in one.operands]
        values[one.name] = expected(one.operator, *inputs, *constants)
    for store in group.stores:
        start = columns[store.column]
        to = before[store.row][:n, start : start + width]
        to[:] = values[store.name] + (to if store.adds else 0)
    sizes = [float(np.abs(value).max(initial=1.0)) for value in values.values()]
    for k, found in enumerate(sources):
        if k < n_inputs:
            np.testing.assert_array_equal(found, before[k])
        else:
            np.testing.assert_allclose(found, before[k], rtol=2e-5, atol=2e-5 * max(sizes))


def test_a_group_of_whole_vectors_has_one_loop_over_columns() -> None:
    whole, ragged = (
        text_of(group_of_one("tanh", 1, 0.0, ragged=ragged)) for ragged in (False, True)
    )
    assert "load float," not in whole
    assert "load float," in ragged
