"""What tracing a vertex function simplifies."""

from __future__ import annotations

from harness.vertex import VertexTracer


def test_equal_expressions_are_one_node() -> None:
    tracer = VertexTracer({"h": 4}, {"A": (4, 4)})
    h = tracer.gather(0).h
    assert (h @ tracer.parameter("A")).node == (tracer.gather(0).h @ tracer.parameter("A")).node
    assert (h + 1.0).node != (h + 2.0).node
    assert tracer.gather(1).h.node != h.node


def test_slices_of_slices_are_folded_and_whole_ones_dropped() -> None:
    tracer = VertexTracer({"h": 8}, {})
    h = tracer.gather(0).h
    _, high = tracer.split(h, 2)
    _, last = tracer.split(high, 2)
    node = tracer.builder[last.node]
    assert (node.op, node.inputs, node.index, node.shape) == ("slice", (h.node,), 6, (2,))
    assert tracer.split(h, 1)[0].node == h.node
