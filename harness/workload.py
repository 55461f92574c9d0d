"""From a spec to the work itself: model, initial weights and the fixed list of mini-batches."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets.base import inputs_sha256, load_corpus, mini_batches
from harness.errors import ConfigError
from harness.models.base import Model, ModelSizes, Weights, initial_weights
from harness.trial import TrialSpec


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


def model_class(module_name: str) -> type[Model]:
    """Return the only Model that a module defines; raises ConfigError unless there is one."""
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        message = f"model.model={module_name} is not a module; name one such as"
        raise ConfigError(f"{message} harness.models.tree_lstm") from None
    found = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Model) and value.__module__ == module_name
    ]
    if len(found) != 1:
        raise ConfigError(f"{module_name} defines {len(found)} models; keep one model in a file")
    return found[0]


def build_model(spec: TrialSpec, vocab_size: int, n_classes: int, n_characters: int = 1) -> Model:
    """Build the model of a trial; raises ConfigError for an option or a size it does not take."""
    kind = model_class(spec.model_module)
    sizes = ModelSizes(
        hidden_size=spec.hidden_size,
        vocab_size=vocab_size,
        n_classes=n_classes,
        embedding_size=spec.embedding_size,
        n_characters=n_characters,
    )
    taken = inspect.signature(kind.__init__).parameters
    named = [name for name in taken if name not in ("self", "sizes", "options")]
    unknown = sorted(set(spec.model_options) - set(named))
    if unknown:
        allowed = ", ".join(named) or "no options"
        message = f"model {spec.model} does not know the option {', '.join(unknown)}"
        raise ConfigError(f"{message}; it takes {allowed}")
    return kind(sizes, **spec.model_options)


def load_workload(spec: TrialSpec) -> Workload:
    """Load the corpus and draw weights and mini-batches; raises ConfigError and DataError."""
    corpus = load_corpus(spec.loader, spec.split, Path(spec.data_root), **spec.dataset_options)
    model = build_model(spec, corpus.vocab_size, corpus.n_classes, corpus.n_characters)
    batches = mini_batches(corpus, spec.batch_size, spec.timing.n_mini_batches, spec.seed)
    flat = [instance for mini_batch in batches for instance in mini_batch]
    return Workload(
        model=model,
        weights=initial_weights(model, spec.seed),
        mini_batches=batches,
        check_instances=flat[: spec.timing.n_check_instances],
        inputs_sha256=inputs_sha256(batches),
    )
