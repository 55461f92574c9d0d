"""From a spec to the work itself: model, initial weights and the fixed list of mini-batches."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from harness.contracts.corpus import inputs_sha256, load_corpus, mini_batches
from harness.contracts.model import Model, ModelSizes, Weights, initial_weights, model_class
from harness.contracts.options import check_options
from harness.trials.ids import check_ids
from harness.trials.spec import TrialSpec


@dataclass(frozen=True, slots=True)
class Workload:
    """What every system of a trial is given; equal inputs have equal inputs_sha256."""

    model: Model
    weights: Weights
    mini_batches: Sequence[Sequence[Any]]
    check_instances: Sequence[Any]
    inputs_sha256: str

    @property
    def n_instances(self) -> int:
        """Instances of one pass."""
        return sum(len(mini_batch) for mini_batch in self.mini_batches)


def build_model(spec: TrialSpec, data_sizes: Mapping[str, int]) -> Model:
    """Build the model of a trial for the sizes that a corpus brings, or none (see Corpus.sizes).

    Raises ConfigError for an option or a size that it does not take.
    """
    kind = model_class(spec.model_module)
    sizes = ModelSizes(
        hidden_size=spec.hidden_size,
        data=data_sizes,
        embedding_size=spec.embedding_size,
        dataset=spec.dataset,
    )
    check_options("model", model_options(kind), spec.model_options, f"model {spec.model}")
    return kind(sizes, **spec.model_options)


def model_options(kind: type[Model]) -> dict[str, Any]:
    """The type of each option that a model takes, by its name."""
    taken = inspect.signature(kind.__init__).parameters
    hints = get_type_hints(kind.__init__)
    return {name: hints.get(name) for name in taken if name not in ("self", "sizes", "options")}


def load_workload(spec: TrialSpec) -> Workload:
    """Load the corpus and draw weights and mini-batches.

    Raises ConfigError, and DataError also for an id outside the model's tables.
    """
    corpus = load_corpus(spec.loader, spec.split, Path(spec.data_root), **spec.dataset_options)
    model = build_model(spec, corpus.sizes)
    n_wanted = spec.n_mini_batches
    only_first = bool(spec.timing.n_instances)
    batches = mini_batches(
        corpus, spec.batch_size, n_wanted, spec.seed, spec.order, only_first=only_first
    )
    check_ids(model, batches)
    flat = [instance for mini_batch in batches for instance in mini_batch]
    return Workload(
        model=model,
        weights=initial_weights(model, spec.seed),
        mini_batches=batches,
        check_instances=flat[: spec.timing.n_check_instances],
        inputs_sha256=inputs_sha256(batches),
    )
