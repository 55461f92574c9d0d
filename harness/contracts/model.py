"""Contract of a model: parameters, vertex functions, and graphs of instances."""

from __future__ import annotations

import inspect
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.corpus import MAX_CHILDREN
from dynbatch.harness.contracts.options import import_complete
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.values.checked import LARGEST_SIZE, check_count
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.vertex.program import VertexFunction
from dynbatch.harness.vertex.tracing import trace

Weights = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Sizes for building a model: widths of layers, and sizes of the dataset.

    Attributes:
        data: Sizes of the dataset by their names in Corpus.sizes, such as "words".
        embedding_size: 0 in the constructor means equal to hidden_size.
        dataset: Name of the dataset.

    Raises:
        ConfigError: A size is below 1.
    """

    hidden_size: int
    data: Mapping[str, int]
    embedding_size: int = 0
    dataset: str = "(none)"

    def __post_init__(self) -> None:
        if self.embedding_size == 0:
            object.__setattr__(self, "embedding_size", self.hidden_size)
        widths = {"hidden_size": self.hidden_size, "embedding_size": self.embedding_size}
        for name, value in {**widths, **self.data}.items():
            if value < 1:
                raise ConfigError(f"{name}={value} is not allowed: expected a size of at least 1")

    def check_equal(self, reason: str) -> None:
        """Check that embeddings are as wide as states."""
        if self.embedding_size != self.hidden_size:
            raise ConfigError(
                f"embedding_size={self.embedding_size} is not allowed with hidden_size="
                f"{self.hidden_size}: {reason}; set 0 or equal sizes"
            )

    def get_size(self, name: str) -> int:
        if name not in self.data:
            raise ConfigError(
                f"the model needs the size {name}, but dataset={self.dataset} has only"
                f" {', '.join(self.data) or 'instances'}; choose another dataset"
            )
        return self.data[name]


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """Shape and initial distribution of one parameter.

    Attributes:
        init_bound: Half width of the uniform distribution (0: zeros).
        init_means: Centers of the distribution for equal parts of the last axis, 0 by default.
    """

    shape: tuple[int, ...]
    init_bound: float
    init_means: tuple[float, ...] = (0.0,)


class Model(ABC):
    """Model, independent of any framework.

    Vertex functions are methods named after the entries of `vertex_types` (and `output`), written
    with dynbatch.harness.vertex; `state` has the width of each state that they scatter to their
    parents.

    Attributes:
        is_trainable: Whether all operators have gradients.
        labels: What the model predicts: "classes", or "words" for a language model. Trials need a
            dataset with such labels.
        any_children: Whether the model runs trees whose vertices have any number of children. Such
            trees of the user's own are then not made binary (dataset.options.binarize=auto).

    Raises:
        ConfigError: An option whose name ends in `_size` is below 0 or too large for an array.
    """

    name: ClassVar[str]
    instance_kind: ClassVar[str]
    vertex_types: tuple[str, ...]
    is_trainable: ClassVar[bool] = True
    labels: ClassVar[str] = "classes"
    any_children: ClassVar[bool] = False

    def __init__(self, sizes: ModelSizes, **options: Any) -> None:
        for name in (option for option in options if option.endswith("_size")):
            check_count(f"model.options.{name}", options[name], 0, LARGEST_SIZE)
        self.sizes = sizes
        self.options = options

    @property
    def max_children(self) -> int | None:
        """Largest number of children in trees that are not binary; None for other instances."""
        return self.sizes.data.get(MAX_CHILDREN)

    @property
    @abstractmethod
    def state(self) -> Mapping[str, int]:
        """Width of each state tensor."""

    @property
    @abstractmethod
    def parameters(self) -> Mapping[str, ParameterSpec]:
        """Parameters by name, in a fixed order."""

    @abstractmethod
    def mini_batch(self, instances: Sequence[Any]) -> MiniBatch:
        """Build the typed graph of a mini-batch."""


def explain_untrainable(model: Model, mode: str) -> str | None:
    """Return the reason if no system can run a model in this mode, or None."""
    if mode == "infer" or model.is_trainable:
        return None
    return (
        f"model {model.name} has operators without gradients and cannot run in mode={mode};"
        " set mode=infer"
    )


def draw_initial_weights(model: Model, seed: int) -> Weights:
    """Draw the initial float32 weights of all systems.

    Each parameter has a random stream keyed by seed and name, so that adding one parameter does not
    change the others.
    """
    weights: Weights = {}
    for name, spec in model.parameters.items():
        stream = np.random.default_rng([seed, zlib.crc32(name.encode())])
        values = stream.uniform(-1.0, 1.0, size=spec.shape) * spec.init_bound
        values += np.repeat(spec.init_means, spec.shape[-1] // len(spec.init_means))
        weights[name] = values.astype(np.float32)
    return weights


def trace_functions(model: Model) -> dict[str, VertexFunction]:
    """Trace all vertex functions and the output function of a model, by name.

    Raises:
        ConfigError: A function gathers a state that no type scatters, or the output function
            gathers from other vertices than the one it reads.
    """
    shapes = {name: spec.shape for name, spec in model.parameters.items()}
    traced = {name: trace(model, name, shapes) for name in (*model.vertex_types, "output")}
    scattered = {state for function in traced.values() for state, _ in function.scatter}
    for function in traced.values():
        gathered = [function.nodes[i] for i in function.find_gathers()]
        missing = sorted({node.name for node in gathered} - scattered)
        if missing:
            raise ConfigError(
                f"{model.name}.{function.name} gathers state {missing[0]}, which no vertex function"
                f" scatters; choose from {', '.join(sorted(scattered)) or 'none'}"
            )
        if function.name == "output" and any(n.op != "gather" or n.index for n in gathered):
            raise ConfigError(f"{model.name}.output gathers more than gather(0); remove the rest")
    return traced


def find_model_class(module_name: str) -> type[Model]:
    """Return the only Model that a module defines.

    Raises:
        ConfigError: The module does not exist, does not define exactly one model, or the model is
            incomplete.
    """
    module = import_complete("model.model", module_name, "dynbatch.harness.models.tree_lstm")
    models = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Model) and value.__module__ == module_name
    ]
    if len(models) != 1:
        raise ConfigError(f"{module_name} defines {len(models)} models; keep one model in a file")
    _check_declared(models[0])
    return models[0]


def _check_declared(kind: type[Model]) -> None:
    """Check, before a model is used, that it defines all required attributes."""
    wanted = ["name", "instance_kind", "vertex_types", *sorted(Model.__abstractmethods__)]
    wanted += [*getattr(kind, "vertex_types", ()), "output"]
    abstract = kind.__abstractmethods__
    missing = [name for name in wanted if name in abstract or not hasattr(kind, name)]
    if missing:
        raise ConfigError(
            f"{kind.__module__}.{kind.__name__} has no {', '.join(missing)}; a model needs a name,"
            " an instance_kind, vertex_types with a method for each, state, parameters, mini_batch"
            " and output"
        )
