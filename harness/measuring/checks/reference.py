"""Results of the float64 reference for a trial, stored by a hash of everything they depend on."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.corpus import hash_inputs
from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.machine.caches import read_cached, write_cached
from dynbatch.harness.machine.folders import hold_key
from dynbatch.harness.reference import has_relu, run_reference
from dynbatch.harness.trials.sources import find_imported_files, hash_files
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.trials.workload import Workload, build_run_settings
from dynbatch.harness.vertex.operators import Node

Array = NDArray[np.floating[Any]]
# Relative to a vertex's largest ReLU input: the error of a float32 sum of a thousand products.
RELU_ROUNDING = 1e-6
LARGEST = float(np.finfo(np.float32).max)  # systems compute in float32
MAX_CHECK_VERTICES = 1024  # the reference, one vertex at a time, then takes about a second


@dataclass(frozen=True, slots=True)
class ReferenceAnswer:
    """Results of the reference; inference has no gradients and no results after a step.

    Attributes:
        slack: Largest change of each gradient entry by rounding of ReLU inputs; empty if the model
            has no ReLU.
    """

    loss: float
    outputs: Array
    gradients: Mapping[str, Array]
    loss_after_step: float | None
    outputs_after_step: Array | None
    slack: Mapping[str, Array] = field(default_factory=dict)


def choose_check_instances(model: Model, instances: Sequence[Any], n_wanted: int) -> Sequence[Any]:
    """Return the first few instances, at least two, and fewer if their graphs are large.

    Raises:
        ConfigError: The model does not accept such instances.
    """
    n, vertices = 0, 0
    for instance in instances[:n_wanted]:
        vertices += model.mini_batch([instance]).graph.n_vertices
        if n >= 2 and vertices > MAX_CHECK_VERTICES:
            break
        n += 1
    return instances[:n]


class Reference:
    """The reference's results for the few instances of the check, at the initial weights."""

    def __init__(self, spec: TrialSpec, workload: Workload) -> None:
        n_wanted = spec.timing.n_check_instances
        self.instances = choose_check_instances(workload.model, workload.check_instances, n_wanted)
        self.answer = ask_reference(spec, workload, self.instances)


def ask_reference(spec: TrialSpec, workload: Workload, instances: Sequence[Any]) -> ReferenceAnswer:
    """Return the reference's results for instances at the initial weights, cached if possible.

    The key is a hash of everything they depend on. A damaged entry is computed again. If another
    process of this machine is computing the same results, this one waits for them.
    """
    rate = build_run_settings(spec).learning_rate
    given = (workload.model, workload.weights, instances, spec.mode, rate)
    if spec.cache_dir is None:
        return compute_reference(*given)
    path = Path(spec.cache_dir) / _build_key(*given)
    with hold_key(path.name):
        stored = read_cached(path)
        if stored is None:
            answer = compute_reference(*given)
            write_cached(path, _pack(answer))
            return answer
    return _unpack(stored)


def compute_reference(
    model: Model, weights: Weights, instances: Sequence[Any], mode: str, learning_rate: float
) -> ReferenceAnswer:
    """Compute the reference's loss, outputs, gradients, and loss and outputs after one step."""
    first = run_reference(model, weights, instances, mode)
    if mode == "infer":
        return ReferenceAnswer(first.loss, first.outputs, {}, None, None)
    stepped = {
        name: value.astype(np.float64) - learning_rate * first.gradients[name]
        for name, value in weights.items()
    }
    after = run_reference(model, stepped, instances, "infer")
    slack = _compute_slack(model, weights, instances) if has_relu(model) else {}
    gradients = dict(first.gradients)
    return ReferenceAnswer(first.loss, first.outputs, gradients, after.loss, after.outputs, slack)


def _compute_slack(model: Model, weights: Weights, instances: Sequence[Any]) -> dict[str, Array]:
    """Return how much gradients change between ReLU thresholds slightly below and above zero."""
    opened, shut = (
        run_reference(model, weights, instances, "train", relu_shift=shift).gradients
        for shift in (RELU_ROUNDING, -RELU_ROUNDING)
    )
    return {name: np.abs(opened[name] - shut[name]) for name in opened}


def _build_key(
    model: Model, weights: Weights, instances: Sequence[Any], mode: str, learning_rate: float
) -> str:
    module = type(model).__module__
    code = hash_files(find_imported_files([run_reference.__module__, module, __name__]))
    options = sorted(model.options.items())
    digest = hashlib.sha256(f"{code} {module} {options} {mode} {learning_rate!r}".encode())
    for name, value in weights.items():
        digest.update(f"{name} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value).data)
    digest.update(hash_inputs([instances]).encode())
    return digest.hexdigest()


def _pack(answer: ReferenceAnswer) -> bytes:
    """Serialize results with the nonzero rows of gradients: an embedding's gradient has few."""
    arrays: dict[str, Array | NDArray[np.intp]] = {"outputs": answer.outputs}
    after = np.nan if answer.loss_after_step is None else answer.loss_after_step
    arrays["losses"] = np.array([answer.loss, after])
    if answer.outputs_after_step is not None:
        arrays["outputs_after_step"] = answer.outputs_after_step
    for group, values in (("gradient", answer.gradients), ("slack", answer.slack)):
        for name, value in values.items():
            table = value.reshape(len(value), -1)
            rows = np.flatnonzero(table.any(axis=1))
            arrays[f"rows.{group}.{name}"] = rows
            arrays[f"values.{group}.{name}"] = table[rows]
            arrays[f"shape.{group}.{name}"] = np.array(value.shape)
    packed = io.BytesIO()
    np.savez(packed, **arrays)  # type: ignore[arg-type]
    return packed.getvalue()


def _unpack(content: bytes) -> ReferenceAnswer:
    with np.load(io.BytesIO(content)) as stored:
        loss, after = (float(value) for value in stored["losses"])
        groups: dict[str, dict[str, Array]] = {"gradient": {}, "slack": {}}
        for key in stored:
            kind, _, label = key.partition(".")
            group, _, name = label.partition(".")
            if kind == "shape":
                shape = tuple(stored[key])
                table = np.zeros((shape[0], int(np.prod(shape[1:], dtype=int))))
                table[stored[f"rows.{label}"]] = stored[f"values.{label}"]
                groups[group][name] = table.reshape(shape)
        outputs = stored["outputs"]
        stepped = "outputs_after_step" in stored
        outputs_after = stored["outputs_after_step"] if stepped else None
    after_step = after if stepped else None
    return ReferenceAnswer(
        loss, outputs, groups["gradient"], after_step, outputs_after, groups["slack"]
    )


class _FoundError(Exception):
    """Signal that ends the reference's run at a value that is not finite."""


def find_not_finite_origin(
    model: Model, weights: Weights, instances: Sequence[Any], mode: str
) -> str:
    """Return which operator of the reference is the first whose value is not finite in float32.

    The first one is meant in program order. If there is none, the system is wrong and not the
    model.
    """

    def watch(function: str, node: Node, vertex: int, value: Any) -> None:
        values = np.asarray(value, np.float64)
        if not np.all(np.abs(values) <= LARGEST):  # also true of NaN
            what = "NaN" if np.any(np.isnan(values)) else "infinite in float32"
            raise _FoundError(
                f"{node.op} of {function} is the first operator with a value that is {what}"
            )

    with np.errstate(all="ignore"):
        try:
            run_reference(model, weights, instances, mode, watch=watch)
        except _FoundError as found:
            return str(found)
    return "the reference is finite there; fix the system, not the model"
