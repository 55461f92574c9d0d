"""Kinds of an update: a step of SGD on every parameter, then the copies of parameters.

Phase by phase: parameters with dense gradients; tables, row by row, one function after another;
packs; transposed copies. No value is written twice in a phase: steps of the same columns, as of a
parameter and of a pack that contains it, are in different ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dynbatch.harness.engine.backends.cuda.kinds import (
    Columns,
    CopyKind,
    Kind,
    Load,
    LoadParameter,
    Row,
    RowList,
    Store,
    TileKind,
    TransposeKind,
    UnbatchedKind,
)
from dynbatch.harness.engine.backends.cuda.places import Places
from dynbatch.harness.engine.backends.cuda.words import (
    Composed,
    DistinctWordsOf,
    FloatArray,
    GradientOf,
    LearningRate,
    LookedUp,
    LookupsOf,
    LookupsStartOf,
    ParameterOf,
    PullOf,
    TransposedOf,
    WordArray,
)
from dynbatch.harness.engine.lowering.plan import Operation
from dynbatch.harness.vertex.subgraph.columns import Pack

Shapes = Mapping[str, Sequence[int]]
STEP = (Operation("change", "mul", ("dy", "rate")), Operation("stepped", "sub", ("x", "change")))


def build_updates(
    all_places: Iterable[Places],
    summed: Collection[str],
    transposed: Collection[str],
    packs: Mapping[str, Pack],
    shapes: Shapes,
) -> tuple[UnbatchedKind, ...]:
    """Return the kinds of an update.

    Args:
        summed: parameters with dense gradients, possibly packs.
        transposed: parameters with a transposed copy.
        shapes: shapes of all parameters, including packs.
    """
    steps = [kind for name in sorted(summed) for kind in _step_dense(name, packs, shapes)]
    tables = list(_step_tables(all_places, shapes))
    copies = [UnbatchedKind(kind, 0) for p in packs.values() for kind in copy_parts(p, shapes)]
    transposes = [_transpose(name, shapes) for name in sorted(transposed)]
    groups = [*_separate(steps), *([kind] for kind in tables), copies, transposes]
    filled = [group for group in groups if group]
    return tuple(replace(kind, phase=k) for k, group in enumerate(filled) for kind in group)


def _separate(steps: Iterable[UnbatchedKind]) -> list[list[UnbatchedKind]]:
    """Group steps so that no two of a group write the same columns."""
    groups: list[list[UnbatchedKind]] = []
    for step in steps:
        free = (group for group in groups if not any(_is_same(step, other) for other in group))
        group = next(free, None)
        if group is None:
            groups.append([step])
        else:
            group.append(step)
    return groups


def _is_same(step: UnbatchedKind, other: UnbatchedKind) -> bool:
    """Return whether two steps write columns in common."""
    (array, start, end), (other_array, other_start, other_end) = map(_find_written, (step, other))
    return array == other_array and start < other_end and other_start < end


def _find_written(step: UnbatchedKind) -> tuple[FloatArray, int, int]:
    assert isinstance(step.kind, TileKind)
    (store,) = step.kind.stores
    return store.columns.array, store.columns.start, store.columns.start + step.kind.width


def _step_dense(name: str, packs: Mapping[str, Pack], shapes: Shapes) -> Iterator[UnbatchedKind]:
    """Yield the step of a parameter, or of each parameter that a pack has columns of."""
    if name not in packs:
        yield _step_columns(name, 0, name, 0, shapes[name][-1], shapes)
        return
    for part, at in packs[name].iterate_parts():
        yield _step_columns(part.parameter, part.start, name, at, part.width, shapes)


def _step_columns(
    parameter: str, start: int, gradient: str, at: int, width: int, shapes: Shapes
) -> UnbatchedKind:
    x = Columns(ParameterOf(parameter), Row(), shapes[parameter][-1], start)
    dy = Columns(GradientOf(gradient), Row(), shapes[gradient][-1], at)
    return UnbatchedKind(_make_step(x, dy, width), 0, count_matrix_rows(shapes[parameter]))


def _make_step(x: Columns, dy: Columns, width: int) -> TileKind:
    loads = (
        ("x", Load(x)), ("dy", Load(dy)), ("rate", LoadParameter(LearningRate(), 0, period=1)),
    )  # fmt: skip
    return TileKind(width, loads=loads, operations=STEP, stores=(Store(x, "stepped"),))


def count_matrix_rows(shape: Sequence[int]) -> int:
    """Return the number of rows of a parameter as a matrix, which is 1 for a vector."""
    return shape[0] if len(shape) > 1 else 1


def _step_tables(all_places: Iterable[Places], shapes: Shapes) -> Iterator[UnbatchedKind]:
    """Yield the steps of tables: every row that was looked up, by the sum of its gradients."""
    for places in all_places:
        for row_sum in places.plan.list_row_sums():
            n_words, leading = shapes[row_sum.table]
            looked_up = LookedUp(PullOf(places.type_id, row_sum.pulled), n_words)
            words, at = DistinctWordsOf(looked_up), 0
            for columns, width in places.list_pieces(row_sum.gradient):
                x = Columns(ParameterOf(row_sum.table), Row(through=words), leading, at)
                gradients = replace(columns, row=_list_lookups(places, columns, looked_up))
                yield UnbatchedKind(_make_step(x, gradients, width), 0, words)
                at += width


def _list_lookups(places: Places, columns: Columns, looked_up: LookedUp) -> RowList:
    """Return the rows of an array with the gradients of every distinct table row."""
    row, items = places.select_all_rows(columns).row, LookupsOf(looked_up)
    assert isinstance(row, Row)
    through: WordArray = items
    if row.through is not None:
        through = Composed(items, row.through, row.stride, row.at)
    return RowList(LookupsStartOf(looked_up), through)


def copy_parts(pack: Pack, shapes: Shapes) -> Iterator[CopyKind]:
    """Yield the copies of parameters' columns into a pack."""
    leading = shapes[pack.name][-1]
    for part, at in pack.iterate_parts():
        yield CopyKind(
            ParameterOf(part.parameter), shapes[part.parameter][-1], part.start,
            ParameterOf(pack.name), leading, at, count_matrix_rows(shapes[pack.name]), part.width,
        )  # fmt: skip


def _transpose(name: str, shapes: Shapes) -> UnbatchedKind:
    height, width = shapes[name]
    return UnbatchedKind(TransposeKind(ParameterOf(name), TransposedOf(name), height, width), 0)


def find_transposed(kinds: Iterable[Kind]) -> frozenset[str]:
    """Return the parameters of which kinds read a transposed copy."""
    arrays: list[FloatArray] = []
    for kind in kinds:
        if isinstance(kind, TileKind):
            arrays += [product.weight for product in kind.products]
    return frozenset(array.name for array in arrays if isinstance(array, TransposedOf))
