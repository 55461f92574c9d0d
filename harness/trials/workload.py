"""Workload of a spec: model, initial weights and the fixed list of mini-batches."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.corpus import (
    AUTO,
    BINARIZE,
    NONE,
    Corpus,
    draw_mini_batches,
    hash_inputs,
    load_corpus,
)
from dynbatch.harness.contracts.model import (
    Model,
    ModelSizes,
    Weights,
    draw_initial_weights,
    find_model_class,
    trace_functions,
)
from dynbatch.harness.contracts.options import check_options
from dynbatch.harness.contracts.system import RunSettings
from dynbatch.harness.errors import ConfigError, DataError
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.values.arrays import IntArray
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Instance
from dynbatch.harness.vertex.program import VertexFunction


@dataclass(frozen=True, slots=True)
class Workload:
    """Model, weights and inputs of a trial; equal inputs have equal inputs_sha256."""

    model: Model
    weights: Weights
    mini_batches: Sequence[Sequence[Any]]
    check_instances: Sequence[Any]
    inputs_sha256: str

    @property
    def repeats_instances(self) -> bool:
        """True if the mini-batches contain an instance several times."""
        return len({id(x) for batch in self.mini_batches for x in batch}) < self.n_instances

    @property
    def n_instances(self) -> int:
        return sum(len(mini_batch) for mini_batch in self.mini_batches)


def build_run_settings(spec: TrialSpec) -> RunSettings:
    """Return the settings that a system receives.

    The learning rate is divided by the batch size, because systems sum the loss over instances:
    otherwise the steps of a large mini-batch would let the weights diverge in a long measurement.
    """
    return RunSettings(
        mode=spec.mode,
        device=spec.device,
        threads=spec.threads,
        batch_size=spec.batch_size,
        learning_rate=spec.learning_rate / spec.batch_size,
        seed=spec.seed,
        policy=spec.policy,
        learning=spec.learning,
        options=spec.system_options,
    )


def build_model(spec: TrialSpec, data_sizes: Mapping[str, int]) -> Model:
    """Build the model of a trial.

    Args:
        data_sizes: Sizes from the corpus, or none (see Corpus.sizes).
    """
    kind = find_model_class(spec.model_module)
    sizes = ModelSizes(
        hidden_size=spec.hidden_size,
        data=data_sizes,
        embedding_size=spec.embedding_size,
        dataset=spec.dataset,
    )
    check_options("model", list_model_options(kind), spec.model_options, f"model {spec.model}")
    return kind(sizes, **spec.model_options)


def choose_arity(spec: TrialSpec) -> TrialSpec:
    """Replace dataset.options.binarize=auto by the model's choice, which the record then has.

    Raises:
        ConfigError: The model runs only binary trees, but binarize=none leaves others as they are.
    """
    asked = spec.dataset_options.get(BINARIZE)
    runs_any = find_model_class(spec.model_module).any_children
    if asked == NONE and not runs_any:
        raise ConfigError(
            f"model={spec.model} runs binary trees, but dataset.options.{BINARIZE}={NONE}; set"
            " right or left"
        )
    if asked != AUTO:
        return spec
    options = {**spec.dataset_options, BINARIZE: NONE if runs_any else "right"}
    return replace(spec, dataset_options=options)


@cache
def list_model_options(kind: type[Model]) -> dict[str, Any]:
    taken = inspect.signature(kind.__init__).parameters
    hints = get_type_hints(kind.__init__)
    return {name: hints.get(name) for name in taken if name not in ("self", "sizes", "options")}


def load_workload(spec: TrialSpec) -> Workload:
    """Load the corpus, and draw weights and mini-batches."""
    corpus = load_corpus(spec.loader, spec.split, Path(spec.data_root), **spec.dataset_options)
    model = build_model(spec, corpus.sizes)
    batches = draw_batches(spec, corpus)
    check_ids(model, batches)
    flat = [instance for mini_batch in batches for instance in mini_batch]
    return Workload(
        model=model,
        weights=draw_initial_weights(model, spec.seed),
        mini_batches=batches,
        check_instances=flat[: spec.timing.n_check_instances],
        inputs_sha256=hash_inputs(batches),
    )


def draw_batches(spec: TrialSpec, corpus: Corpus) -> list[tuple[Instance, ...]]:
    """Draw the fixed list of mini-batches of a trial."""
    return draw_mini_batches(
        corpus,
        spec.batch_size,
        spec.n_mini_batches,
        spec.seed,
        spec.order,
        only_first=bool(spec.timing.n_instances),
        last=spec.timing.last,
    )


OUTPUT = "output"  # name of the output function


@dataclass(frozen=True, slots=True)
class Use:
    """Indexing in a vertex function: entry `pull` of something with n_entries entries.

    Attributes:
        what: Description of an entry, for messages.
        table: Name of the table that is looked up; empty for the scores of a loss.
    """

    function: str
    pull: str
    what: str
    n_entries: int
    table: str = ""


def check_ids(model: Model, mini_batches: Sequence[Sequence[Any]]) -> None:
    """Check that all ids are within the tables and layers that they index."""
    functions = trace_functions(model)
    uses = [use for function in functions.values() for use in _find_uses(function)]
    for instances in mini_batches if uses else ():
        mini_batch = model.mini_batch(instances)
        for use in uses:
            _check(model, use, _select_ids(mini_batch, use))


def count_lookups(model: Model, instances: Sequence[Any]) -> dict[str, NDArray[np.intp]]:
    """Count the lookups of each row of each table in a mini-batch, by the table's name."""
    mini_batch = model.mini_batch(instances)
    lookups: dict[str, NDArray[np.intp]] = {}
    for function in trace_functions(model).values():
        for use in _find_uses(function):
            if use.table:
                counts = np.bincount(_select_ids(mini_batch, use), minlength=use.n_entries)
                lookups[use.table] = lookups.get(use.table, 0) + counts
    return lookups


def _find_uses(function: VertexFunction) -> Iterator[Use]:
    """Yield the indexing operations of a function: table lookups, and labels of losses."""
    for node in function.nodes:
        operands = [function.nodes[i] for i in node.inputs]
        if node.op == "lookup":
            table, row = operands
            what = f"row of the table {table.name}"
            yield Use(function.name, row.name, what, table.shape[0], table.name)
        elif node.op == "pick_neg_log_softmax":
            logits, label = operands
            yield Use(function.name, label.name, "score of the layer under the loss", logits.width)


def _select_ids(mini_batch: MiniBatch, use: Use) -> IntArray:
    """Return the ids that the vertices of a function pull; outputs may have separate pulls."""
    if use.function == OUTPUT:
        if mini_batch.output_pulls is not None:
            return mini_batch.output_pulls[use.pull]
        return mini_batch.pulls[use.pull][mini_batch.outputs]
    names = mini_batch.graph.type_names
    if use.function not in names:
        return mini_batch.pulls[use.pull][:0]
    ids: IntArray = mini_batch.pulls[use.pull][mini_batch.functions == names.index(use.function)]
    return ids


def _check(model: Model, use: Use, ids: IntArray) -> None:
    outside = np.flatnonzero((ids < 0) | (ids >= use.n_entries))
    if len(outside):
        raise DataError(
            f"{use.pull}={ids[outside[0]]} is not a {use.what} of {model.name}: expected 0 to"
            f" {use.n_entries - 1}; fix the ids or sizes of dataset={model.sizes.dataset}"
        )
