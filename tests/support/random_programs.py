"""Random vertex functions for hypothesis: every step picks an operator and its operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hypothesis import strategies as st

from dynbatch.harness.contracts.model import ModelSizes, ParameterSpec
from dynbatch.harness.vertex import (
    Symbol,
    VertexTracer,
    exp,
    expand,
    log,
    pick_neg_log_softmax,
    relu,
    sigmoid,
    spread,
    sqrt,
    square,
    sum_edges,
    sum_elements,
    tanh,
)
from tests.support.sketch_models import Sketch, SketchModel

WIDTHS = (2, 4)  # default widths of values: the second is twice the first
Step = tuple[int, int, int]  # operator, first and second operand, each modulo the number of choices
Recipe = Sequence[Step]
SIZES = ModelSizes(4, {"words": 7, "classes": 3})
STEPS = st.lists(st.tuples(*[st.integers(0, 255)] * 3), min_size=1, max_size=9)

# Functions of two values of equal width; the second may be ignored. Results are moderate.
PAIRWISE: Sequence[Callable[[Symbol, Symbol], Symbol]] = (
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * tanh(y),
    lambda x, y: x / (square(y) + 1.0),
    lambda x, y: -x,
    lambda x, y: 0.5 * x - 0.25,
    lambda x, y: sigmoid(x) * y,
    lambda x, y: tanh(x),
    lambda x, y: relu(x) + y,
    lambda x, y: exp(tanh(x)),
    lambda x, y: log(square(x) + 1.0),
    lambda x, y: sqrt(square(x) + 1.0) * y,
    lambda x, y: square(tanh(x)),
)


class RandomModel(SketchModel):
    """Leaves, vertices with one or two children by slot, vertices with any number of children."""

    vertex_types = ("leaf", "unary", "binary", "many")

    def __init__(self, recipes: Mapping[str, Recipe], width: int = WIDTHS[0]) -> None:
        super().__init__(SIZES)
        self.recipes, self.widths = recipes, (width, 2 * width)

    @property
    def state(self) -> Mapping[str, int]:
        narrow, wide = self.widths
        return {"a": narrow, "c": wide, "h": wide}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        shapes: dict[str, tuple[int, ...]] = {
            f"{name}{m}x{n}": (m, n) for name in "WU" for m in self.widths for n in self.widths
        }
        shapes |= {"W_out": (self.widths[1], 3)}
        # Scaled so that sums of many products are as large as those of four.
        found = {
            name: ParameterSpec(shape, 0.6 * min(1.0, (4 / shape[0]) ** 0.5))
            for name, shape in shapes.items()
        }
        for n in self.widths:
            found |= {f"{name}{n}": ParameterSpec((n,), 0.6) for name in "bd"}
            found |= {f"E{n}": ParameterSpec((7, n), 0.6)}
        return found

    def leaf(self, v: VertexTracer) -> None:
        self._scatter(v, _grow(v, self.widths, self.recipes["leaf"], self._looked_up(v, "word")))

    def unary(self, v: VertexTracer) -> None:
        child = v.gather(0)
        values = [child.h, child.c, child.a, *self._looked_up(v, "tag")]
        self._scatter(v, _grow(v, self.widths, self.recipes["unary"], values))

    def binary(self, v: VertexTracer) -> None:
        left, right = v.gather(0), v.gather(1)
        values = [left.h, right.h, left.c, left.a, right.a, *self._looked_up(v, "tag")]
        self._scatter(v, _grow(v, self.widths, self.recipes["binary"], values))

    def many(self, v: VertexTracer) -> None:
        each, own = v.gather_each(), self._looked_up(v, "word")
        edges = _grow(
            v, self.widths, self.recipes["edges"], [each.h, each.c, each.a, *map(spread, own)]
        )
        values = [*own, *map(sum_edges, edges[-4:])]
        self._scatter(v, _grow(v, self.widths, self.recipes["many"], values))

    def output(self, v: VertexTracer) -> None:
        state = v.gather(0)
        values = _grow(v, self.widths, self.recipes["output"], [state.h, state.a])
        logits = _last(values, self.widths[1]) @ v.parameter("W_out")
        loss = pick_neg_log_softmax(logits, v.pull("label"))
        v.push(values[len(values) // 2], loss=loss + _total(tanh(values[-1])))

    def _scatter(self, v: VertexTracer, values: list[Symbol]) -> None:
        wide = [x for x in values if x.shape == self.widths[1:]]
        v.scatter(a=_last(values, self.widths[0]), h=wide[-1], c=wide[len(wide) // 2])

    def _looked_up(self, v: VertexTracer, pull: str) -> list[Symbol]:
        return [v.lookup(f"E{n}", v.pull(pull)) for n in self.widths]


def _last(values: Sequence[Symbol], width: int) -> Symbol:
    return [x for x in values if x.shape == (width,)][-1]


def _grow(
    v: VertexTracer, widths: tuple[int, int], recipe: Recipe, values: list[Symbol]
) -> list[Symbol]:
    for step in recipe:
        values = values + _results(v, widths, step, values)
    return values


def _results(
    v: VertexTracer, widths: tuple[int, int], step: Step, values: Sequence[Symbol]
) -> list[Symbol]:
    kind, first, second = step
    x = values[first % len(values)]
    like = [y for y in values if y.shape == x.shape]
    y = like[second % len(like)]
    (n,) = x.shape
    other = widths[second % 2]
    if kind % 6 == 0:
        return [x @ v.parameter(f"{'WU'[first % 2]}{n}x{other}")]
    if kind % 6 == 1:
        return [y + x @ v.parameter(f"{'WU'[first % 2]}{n}x{n}")]
    if kind % 6 == 2:
        return [PAIRWISE[kind // 6 % len(PAIRWISE)](x, y)]
    if kind % 6 == 3:
        return [x + v.parameter(f"b{n}") if second % 3 else expand(_total(x), other)]
    if kind % 6 == 4:
        return _gates(v, x, y, first)
    if n == widths[0]:
        return [v.concat(x, y)]
    return _pieces(v, x, second)


def _gates(v: VertexTracer, x: Symbol, y: Symbol, how: int) -> list[Symbol]:
    """Return matmuls of one value and several matrices, alone or in sums, with or without bias."""
    (n,) = x.shape
    gates = [x @ v.parameter(f"{name}{n}x{n}") for name in "WU"]
    if how % 3 == 1:
        gates = [
            gate + y @ v.parameter(f"{name}{n}x{n}") for gate, name in zip(gates, "UW", strict=True)
        ]
    if how % 3 == 2:
        gates[0] = tanh(y) + gates[0]
    if how % 4:
        gates = [gate + v.parameter(f"{name}{n}") for gate, name in zip(gates, "bd", strict=True)]
    return gates if how % 5 else [gates[0] * sigmoid(gates[1])]


def _total(x: Symbol) -> Symbol:
    """Return the sum of all elements, or four times their mean."""
    (n,) = x.shape
    return sum_elements(x) if n <= 4 else sum_elements(x) * (4 / n)


def _pieces(v: VertexTracer, x: Symbol, how: int) -> list[Symbol]:
    """Return halves, or a half and the overlapping middle, or halves in reverse order."""
    low, high = v.split(x, 2)
    if how % 3 == 0:
        return [low, high]
    if how % 3 == 1:
        (n,) = low.shape
        return [low, v.slice_columns(x, (n + 1) // 2, n)]
    return [v.concat(high, low)]


RECIPES = ("leaf", "unary", "binary", "edges", "many", "output")
recipes = st.fixed_dictionaries({name: STEPS for name in RECIPES})
models = recipes.map(RandomModel)


@st.composite
def sketches(draw: st.DrawFn, max_vertices: int = 9) -> Sketch:
    """Draw a random typed graph; a child may be read often, or twice by one vertex."""
    vertices: list[tuple[str, list[int]]] = []
    for k in range(draw(st.integers(1, max_vertices))):
        kind = draw(st.sampled_from(RandomModel.vertex_types if k else ("leaf", "many")))
        n_args = {"leaf": 0, "unary": 1, "binary": 2}.get(kind)
        fewest, most = (0, 3) if n_args is None else (n_args, n_args)
        earlier = st.integers(0, k - 1) if k else st.nothing()
        vertices.append(
            (kind, draw(st.lists(earlier, min_size=fewest, max_size=most)) if k else [])
        )
    read = draw(st.lists(st.integers(0, len(vertices) - 1), unique=True, max_size=3))
    return Sketch(vertices, tuple(read))
