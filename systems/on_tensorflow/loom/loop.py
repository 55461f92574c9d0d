"""The executed graph: one while loop over depths, every op at every depth, whatever its batch.

Source: the release of Looks et al., ICLR 2017, tensorflow_fold/loom/loom.py,
`_construct_loom_layer` and what calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from systems.on_tensorflow.loom.ops import Loom

PARALLEL_ITERATIONS = 10  # the original's
Tensors = Mapping[str, Any]  # by type shape, or by name of a weight


def last_states(
    loom: Loom, weights: Tensors, rows: Tensors, indices: Any, starts: Any, sizes: Any
) -> Tensors:
    """Return the state of every type shape at max_depth; traced.

    rows: initial states. indices, starts, sizes: see Wiring.
    """
    shapes = [tf.TensorShape([None, width]) for width in loom.type_shapes.values()]

    def layer(depth: Any, *states: Any) -> tuple[Any, ...]:
        wires = tf.split(indices[starts[depth] : starts[depth + 1]], sizes[depth], num=loom.n_slots)
        return depth + 1, *next_states(loom, weights, states, wires)

    max_depth = tf.shape(sizes)[0]
    _, *last = tf.while_loop(
        lambda depth, *_: depth < max_depth,
        layer,
        (0, *(rows[name] for name in loom.type_shapes)),
        shape_invariants=(tf.TensorShape([]), *shapes),
        parallel_iterations=PARALLEL_ITERATIONS,
    )
    return dict(zip(loom.type_shapes, last, strict=True))


def next_states(
    loom: Loom, weights: Tensors, states: Sequence[Any], wires: Sequence[Any]
) -> list[Any]:
    """States of a depth, each the concatenation of all outputs of its type shape.

    wires: which rows of the states before each slot takes; pass-throughs are ops like all others.
    """
    before = dict(zip(loom.type_shapes, states, strict=True))
    waiting = iter(wires)
    found = {name: [tf.gather(state, next(waiting))] for name, state in before.items()}
    for op in loom.ops:
        arguments = [tf.gather(before[name], next(waiting)) for name in op.arguments]
        for name, output in zip(op.outputs, op.function(weights, *arguments), strict=True):
            found[name].append(output)
    return [tf.concat(outputs, 0) if outputs[1:] else outputs[0] for outputs in found.values()]
