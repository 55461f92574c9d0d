"""Models of sketches that are difficult for an engine: shared values, several widths, matrices."""

from __future__ import annotations

from collections.abc import Mapping

from dynbatch.harness.vertex import (
    VertexTracer,
    relu,
    sigmoid,
    spread,
    sum_edges,
    sum_elements,
    tanh,
)
from tests.support.sketch_models import SketchModel


class SharedChildren(SketchModel):
    """A DAG: values with several parents, the same child in two slots, sums of matmuls.

    The sums of matmuls may share memory. One is scattered, one is part of a concatenation, and one
    (in dF) has a term that is itself the gradient of a child.
    """

    name = "shared_children"
    vertex_types = ("leaf", "inner")

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, h), "A": (h, h), "B": (h, h), "C": (2 * h, h), "b": (h,)}

    def leaf(self, v: VertexTracer) -> None:
        x = v.lookup("embedding", v.pull("word")) @ v.parameter("W") + v.parameter("b")
        v.scatter(c=x, h=tanh(x))

    def inner(self, v: VertexTracer) -> None:
        left, right = v.gather(0), v.gather(1)
        both = left.h + right.c
        summed = left.h @ v.parameter("A") + right.h @ v.parameter("B")
        mixed = both @ v.parameter("B") + right.c @ v.parameter("A")
        joined = v.concat(mixed, relu(left.c - right.h)) @ v.parameter("C")
        v.scatter(c=summed, h=tanh(joined + summed + v.parameter("b")))


class SharedSums(SketchModel):
    """Sums that a matmul could include, each with a reader that must not see the sum.

    They add a matmul to itself, to a part of a scattered matmul, to columns that overlap those of
    another reader, and (in dF) to a value that is already a child's gradient.
    """

    name = "shared_sums"
    vertex_types = ("leaf", "inner")

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, h), "A": (h, h), "B": (h, h), "C": (h, h), "M": (h, h // 2)}

    def leaf(self, v: VertexTracer) -> None:
        x = v.lookup("embedding", v.pull("word")) @ v.parameter("W")
        v.scatter(c=x, h=tanh(x))

    def inner(self, v: VertexTracer) -> None:
        left, right = v.gather(0), v.gather(1)
        shown = (left.c + right.h) @ v.parameter("A")
        low, high = v.split(shown, 2)
        doubled = right.h @ v.parameter("B")
        doubled = doubled + doubled
        narrow = left.h @ v.parameter("C")
        first, _ = v.split(narrow, 2)
        middle = v.slice_columns(narrow, 1, 2)
        to_shown = low + left.h @ v.parameter("M")
        to_first = first + right.h @ v.parameter("M")
        joined = v.concat(tanh(to_shown) * high, sigmoid(to_first) * tanh(middle))
        v.scatter(c=shown, h=tanh(joined + doubled))


class SeveralWidths(SketchModel):
    """Types that write states of different widths, one narrow and one wide, read by a third."""

    name = "several_widths"
    vertex_types = ("narrow", "wide", "inner")

    @property
    def state(self) -> Mapping[str, int]:
        return {"a": 2, "w": 6, "h": self.sizes.hidden_size}

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"N": (e, 2), "N_h": (2, h), "V": (e, 6), "V_h": (6, h), "M": (8, h), "P": (h, 2)}

    def narrow(self, v: VertexTracer) -> None:
        a = v.lookup("embedding", v.pull("word")) @ v.parameter("N")
        v.scatter(a=tanh(a), h=a @ v.parameter("N_h"))

    def wide(self, v: VertexTracer) -> None:
        w = sigmoid(v.lookup("embedding", v.pull("tag")) @ v.parameter("V"))
        v.scatter(w=w, h=w @ v.parameter("V_h"))

    def inner(self, v: VertexTracer) -> None:
        first, second = v.gather(0), v.gather(1)
        h = v.concat(first.a, second.w) @ v.parameter("M") + first.h * second.h
        v.scatter(h=tanh(h), a=tanh(h) @ v.parameter("P"))


class PassesOn(SketchModel):
    """Model that scatters a gathered state unchanged, and one value twice, and pushes a state."""

    name = "passes_on"
    vertex_types = ("leaf", "inner")

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, h), "U": (2 * h, h)}

    def leaf(self, v: VertexTracer) -> None:
        x = tanh(v.lookup("embedding", v.pull("word")) @ v.parameter("W"))
        v.scatter(c=x, h=x)

    def inner(self, v: VertexTracer) -> None:
        left, right = v.gather(0), v.gather(1)
        both = tanh(v.concat(left.h, right.h))  # a kernel with the states of two children
        v.scatter(c=left.c, h=tanh(both @ v.parameter("U")))

    def output(self, v: VertexTracer) -> None:
        state = v.gather(0)
        v.push(state.h, loss=sum_elements(state.c * state.h))


class PushesPart(PassesOn):
    """Model that pushes columns of a value that is not stored otherwise."""

    name = "pushes_part"

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, h), "U": (2 * h, h), "V": (h, 2 * h)}

    def output(self, v: VertexTracer) -> None:
        left, right = v.split(v.gather(0).h @ v.parameter("V"), 2)
        v.push(left, loss=sum_elements(left * right))


class ShiftedParts(PassesOn):
    """Model that adds overlapping columns of the same value, the later ones first."""

    name = "shifted_parts"

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, h), "U": (2 * h, h), "V": (h, h + 1)}

    def output(self, v: VertexTracer) -> None:
        whole = v.gather(0).h @ v.parameter("V")
        h = self.sizes.hidden_size
        shown = v.slice_columns(whole, 1, h) + v.slice_columns(whole, 0, h)
        v.push(shown, loss=sum_elements(shown * shown))


class TwoPulls(SketchModel):
    """Model that looks up one table by two names of rows, and uses one matrix in two types."""

    name = "two_pulls"
    vertex_types = ("leaf", "inner")

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"W": (e, h), "U": (h, h), "b": (h,)}

    def leaf(self, v: VertexTracer) -> None:
        word, tag = v.lookup("embedding", v.pull("word")), v.lookup("embedding", v.pull("tag"))
        h = (word * tag) @ v.parameter("W")
        v.scatter(c=(h + v.parameter("b")) @ v.parameter("U"), h=tanh(h))

    def inner(self, v: VertexTracer) -> None:
        left, right = v.gather(0), v.gather(1)
        tag = v.lookup("embedding", v.pull("tag")) @ v.parameter("W")
        v.scatter(c=left.c + right.c, h=tanh(left.h @ v.parameter("U") + right.c + tag))


class Matrices(SketchModel):
    """States that are matrices, not square ones: matmuls, biases and kernels row by row.

    One vertex multiplies one matrix twice. One sum has a bias and a matmul, another one a bias on
    either side. One value is multiplied and also read by parents.
    """

    name = "matrices"
    vertex_types = ("leaf", "inner")

    @property
    def state(self) -> Mapping[str, int]:
        return {"u": 2, "h": self.sizes.hidden_size, "T": 2 * self.sizes.hidden_size}

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        shapes = {"E": (e, 2), "H": (e, h), "M": (7, 2 * h), "A": (h, h), "B": (h, h), "b": (h,)}
        return shapes | {"C": (h, 2)}

    def leaf(self, v: VertexTracer) -> None:
        x = v.lookup("embedding", v.pull("word"))
        v.scatter(u=x @ v.parameter("E"), h=x @ v.parameter("H"), T=v.lookup("M", v.pull("tag")))

    def inner(self, v: VertexTracer) -> None:
        left, right, b = v.gather(0), v.gather(1), v.parameter("b")
        S, T = left.as_matrix("T", 2), right.as_matrix("T", 2)
        h = tanh(left.u @ T + right.u @ T) * (right.u @ S)
        T = S @ v.parameter("A") + b + T @ v.parameter("B")
        T = tanh(T * S + b) @ v.parameter("B") + b
        v.scatter(u=tanh(h @ v.parameter("C")), h=tanh(left.u @ T + h), T=T)


class MatrixSum(SketchModel):
    """Matrices of any number of children: matmuls on the edges, and their sums."""

    name = "matrix_sum"
    vertex_types = ("vertex",)

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": self.sizes.hidden_size, "T": 3 * self.sizes.hidden_size}

    def shapes(self, h: int, e: int) -> Mapping[str, tuple[int, ...]]:
        return {"M": (7, 3 * h), "A": (h, h), "b": (h,), "C": (e, h)}

    def vertex(self, v: VertexTracer) -> None:
        x, each = v.lookup("embedding", v.pull("word")), v.gather_each()
        T = each.as_matrix("T", 3)
        own = v.lookup("M", v.pull("tag"))
        products = tanh(T @ v.parameter("A") + v.parameter("b"))
        h = x @ v.parameter("C") + sum_edges(spread(x) @ products) + sum_edges(each.h)
        v.scatter(h=tanh(h), T=own + v.concat(h, sum_edges(each.h), h))
