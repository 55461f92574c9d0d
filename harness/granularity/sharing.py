"""Deduplication: vertices with equal inputs are computed once per mini-batch.

Vertices without children whose external inputs are equal have the same state: in a mini-batch of 64
SST trees half of the leaves repeat a word, and leaves of Tree-FC that read nothing are all equal. A
single vertex replaces them; their readers read it, and its gradient is the sum of theirs. This is
common-subexpression elimination across instances (TorchFold's cache does the same).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.values.arrays import IntArray, as_int_array
from dynbatch.harness.values.graph import Graph, MiniBatch
from dynbatch.harness.vertex.program import VertexFunction


def find_shareable_pulls(functions: Mapping[int, VertexFunction]) -> dict[int, tuple[str, ...]]:
    """Return the pulls of each type that is worth deduplicating.

    These types read only external inputs, or nothing, and contain matmuls; a bare lookup costs no
    more than the gather that deduplication would add.
    """
    shareable = {}
    for type_id, function in functions.items():
        ops = {node.op for node in function.nodes}
        if not function.find_gathers() and "matmul" in ops:
            names = {node.name for node in function.nodes if node.op == "pull"}
            shareable[type_id] = tuple(sorted(names))
    return shareable


def share_equal(mini_batch: MiniBatch, pulls_of: Mapping[int, tuple[str, ...]]) -> MiniBatch:
    """Merge each set of equal vertices into one.

    Outputs keep their own pulls, such as labels, which may differ.

    Args:
        pulls_of: from find_shareable_pulls.

    Raises:
        ScheduleError: if the mini-batch has no value for a pull of its vertices.
    """
    graph, pulls, read = mini_batch.graph, mini_batch.pulls, mini_batch.outputs
    keys = _compute_input_keys(mini_batch, pulls_of)
    types, arg_start, args, kept, new_id = _merge(keys, graph.types, graph.arg_start, graph.args)
    in_order = len(read) == graph.n_vertices and bool((read[1:] > read[:-1]).all())
    return MiniBatch(
        graph=Graph(
            types=types,
            arg_start=arg_start,
            args=args,
            type_names=graph.type_names,
            follows=graph.follows,
            cheap=graph.cheap,
            **_find_earliest(graph, kept, new_id),
        ),
        pulls={name: values[kept] for name, values in pulls.items()},
        outputs=new_id if in_order else new_id[read],
        n_instances=mini_batch.n_instances,
        output_pulls=pulls if in_order else {k: values[read] for k, values in pulls.items()},
    )


def _find_earliest(graph: Graph, kept: IntArray, new_id: IntArray) -> dict[str, Any]:
    """Return segment, phase and depth of every merged vertex: the earliest of its set."""
    known = {"segments": graph.segments, "phases": graph.phases, "depths": graph.depths}
    counters = {name: values for name, values in known.items() if values is not None}
    if not counters:
        return {}
    lengths = tuple(int(values.max(initial=0)) + 1 for values in counters.values())
    order = np.ravel_multi_index(tuple(counters.values()), lengths)
    earliest = order[kept]
    np.minimum.at(earliest, new_id, order)
    coordinates = np.unravel_index(earliest, lengths)
    return {name: as_int_array(values) for name, values in zip(counters, coordinates, strict=True)}


def _compute_input_keys(mini_batch: MiniBatch, pulls_of: Mapping[int, tuple[str, ...]]) -> IntArray:
    """Return a key for each vertex: equal for equal pulls, -1 if it cannot be merged.

    Raises:
        ScheduleError: if the mini-batch has no value for a pull of its vertices.
    """
    types = mini_batch.graph.types
    keys: IntArray = np.full(len(types), -1, dtype=np.int32)
    n_keys = 0
    for type_id, names in pulls_of.items():
        is_of_type = types == type_id
        if not is_of_type.any():
            continue
        values: IntArray = np.zeros(len(types), dtype=np.int32)  # equal without pulls
        if len(names) == 1:
            values = mini_batch.get_pull(names[0])
        elif names:
            pulled = np.stack([mini_batch.get_pull(name) for name in names])
            values = np.unique(pulled, axis=1, return_inverse=True)[1].astype(np.int32)
        shared = is_of_type & (values >= 0)  # -1: pulls nothing, so it equals no other
        np.copyto(keys, values + np.int32(n_keys), where=shared)
        n_keys += int(values.max(initial=-1)) + 1
    return keys


@compiled
def _merge(
    keys: IntArray, types: IntArray, arg_start: IntArray, args: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Merge vertices of equal keys into the first one; all vertices with key -1 remain.

    Returns:
        types, arg_start and args of the new graph, the remaining vertices, and every vertex's new
            id.
    """
    n = len(keys)
    n_keys = keys.max() + 1 if n else 0
    new_of_key = np.full(n_keys, -1, dtype=np.int32)
    new_id = np.empty(n, dtype=np.int32)
    kept = np.empty(n, dtype=np.int32)
    new_types = np.empty(n, dtype=np.int32)
    new_start = np.empty(n + 1, dtype=np.int32)
    new_args = np.empty(len(args), dtype=np.int32)
    n_kept = n_args = 0
    for vertex in range(n):
        key = keys[vertex]
        if key >= 0:
            if new_of_key[key] >= 0:
                new_id[vertex] = new_of_key[key]
                continue
            new_of_key[key] = n_kept
        new_id[vertex] = n_kept
        kept[n_kept], new_types[n_kept], new_start[n_kept] = vertex, types[vertex], n_args
        for k in range(arg_start[vertex], arg_start[vertex + 1]):
            new_args[n_args] = new_id[args[k]]
            n_args += 1
        n_kept += 1
    new_start[n_kept] = n_args
    return new_types[:n_kept], new_start[: n_kept + 1], new_args[:n_args], kept[:n_kept], new_id
