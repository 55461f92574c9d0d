"""The oracle's answer for the check mini-batch, kept on disk so that it is computed once."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.contracts.corpus import inputs_sha256
from harness.contracts.model import Model, Weights
from harness.machine.kept import keep, kept
from harness.oracle import has_relu, run_reference
from harness.trials.sources import hash_files, imported_files

Array = NDArray[np.floating[Any]]
# Of a vertex's largest input to a relu: float32 sums of a thousand products are wrong by as much.
RELU_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Answer:
    """The oracle's answer; when inferring, gradients are empty and nothing is known after a step.

    slack: how far rounding in the inputs of relus can move each entry of a gradient; empty where
    the model has none.
    """

    loss: float
    outputs: Array
    gradients: Mapping[str, Array]
    loss_after_step: float | None
    outputs_after_step: Array | None
    slack: Mapping[str, Array] = field(default_factory=dict)


def oracle_answer(
    model: Model,
    weights: Weights,
    instances: Sequence[Any],
    mode: str,
    learning_rate: float,
    cache_dir: Path | None,
) -> Answer:
    """Ask the oracle, or its cache: an answer is stored under a hash of all it depends on.

    What is stored and damaged is asked for again.
    """
    if cache_dir is None:
        return _ask(model, weights, instances, mode, learning_rate)
    path = cache_dir / _key(model, weights, instances, mode, learning_rate)
    stored = kept(path)
    if stored is not None:
        return _unpacked(stored)
    answer = _ask(model, weights, instances, mode, learning_rate)
    keep(path, _packed(answer))
    return answer


def _ask(
    model: Model, weights: Weights, instances: Sequence[Any], mode: str, learning_rate: float
) -> Answer:
    first = run_reference(model, weights, instances, mode)
    if mode == "infer":
        return Answer(first.loss, first.outputs, {}, None, None)
    stepped = {
        name: value.astype(np.float64) - learning_rate * first.gradients[name]
        for name, value in weights.items()
    }
    after = run_reference(model, stepped, instances, "infer")
    slack = _slack(model, weights, instances) if has_relu(model) else {}
    gradients = dict(first.gradients)
    return Answer(first.loss, first.outputs, gradients, after.loss, after.outputs, slack)


def _slack(model: Model, weights: Weights, instances: Sequence[Any]) -> dict[str, Array]:
    """Gradients with all relus a little further open, less those with all a little further shut."""
    opened, shut = (
        run_reference(model, weights, instances, "train", relu_shift=shift).gradients
        for shift in (RELU_ROUNDING, -RELU_ROUNDING)
    )
    return {name: np.abs(opened[name] - shut[name]) for name in opened}


def _key(
    model: Model, weights: Weights, instances: Sequence[Any], mode: str, learning_rate: float
) -> str:
    module = type(model).__module__
    code = hash_files(imported_files([run_reference.__module__, module, __name__]))
    options = sorted(model.options.items())
    digest = hashlib.sha256(f"{code} {module} {options} {mode} {learning_rate!r}".encode())
    for name, value in weights.items():
        digest.update(f"{name} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value).data)
    digest.update(inputs_sha256([instances]).encode())
    return digest.hexdigest()


def _packed(answer: Answer) -> bytes:
    """Hold rows of gradients that are not zero: an embedding's gradient has few of them."""
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


def _unpacked(content: bytes) -> Answer:
    with np.load(io.BytesIO(content)) as stored:
        loss, after = (float(value) for value in stored["losses"])
        found: dict[str, dict[str, Array]] = {"gradient": {}, "slack": {}}
        for key in stored:
            kind, _, place = key.partition(".")
            group, _, name = place.partition(".")
            if kind == "shape":
                shape = tuple(stored[key])
                table = np.zeros((shape[0], int(np.prod(shape[1:], dtype=int))))
                table[stored[f"rows.{place}"]] = stored[f"values.{place}"]
                found[group][name] = table.reshape(shape)
        outputs = stored["outputs"]
        stepped = "outputs_after_step" in stored
        outputs_after = stored["outputs_after_step"] if stepped else None
    after_step = after if stepped else None
    return Answer(loss, outputs, found["gradient"], after_step, outputs_after, found["slack"])
