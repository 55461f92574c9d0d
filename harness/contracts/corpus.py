"""What every corpus offers, and the fixed mini-batches that all systems of a trial share."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from harness.contracts.home import SPLITS
from harness.contracts.options import check_options
from harness.errors import ConfigError, DataError
from harness.values.arrays import shuffled
from harness.values.instances import Instance, length_of

Indices = NDArray[np.int64]

ORDERS = ("shuffled", "file", "length")


@dataclass(frozen=True, slots=True)
class Corpus:
    """The instances of one split, and what a model must know of the corpus.

    instances: in the file's order; may build each instance when it is first asked for.
    sizes: how many of each thing there are that a model needs a table or a layer for, by name:
        "words" and "characters" (rows, the row of unknown ones included), "classes", or others.
    sha256: of the split's bytes, or of a generator's arguments.
    source: in words, for captions.
    skipped: how many instances of the files were left out, by the reason in words.
    generated: whether the loader's arguments alone determine the instances, and no file does.

    Raises DataError for a corpus without instances, or with a size below 1.
    """

    name: str
    split: str
    instances: Sequence[Instance]
    sizes: Mapping[str, int]
    synthetic: bool
    sha256: str
    source: str
    instance_kind: str = "tree"
    skipped: Mapping[str, int] = field(default_factory=dict)
    generated: bool = False

    def __post_init__(self) -> None:
        for what, size in {"instances": len(self.instances), **self.sizes}.items():
            if size < 1:
                raise DataError(
                    f"corpus {self.name} ({self.split}) has {size} {what}; it needs at least 1"
                )

    def size(self, name: str) -> int:
        """Return a size by its name; raises DataError where the corpus does not bring it."""
        if name not in self.sizes:
            raise DataError(
                f"corpus {self.name} ({self.split}) brings no size {name}; it brings"
                f" {', '.join(self.sizes) or 'none'}"
            )
        return self.sizes[name]


def load_corpus(loader: str, split: str, root: Path | None, **options: Any) -> Corpus:
    """Load one split with the module named `loader` (e.g. "datasets.sst").

    Raises ConfigError for an unknown loader, split or option, DataError for unusable data.
    """
    if split not in SPLITS:
        raise ConfigError(f"split={split} is unknown; choose one of {', '.join(SPLITS)}")
    check_loader_options(loader, options)
    return _function_of(loader)(split, root, **options)


def check_loader_options(loader: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an unknown loader, and for an option that it does not take."""
    check_options("dataset", loader_options(loader), options, loader)


@functools.cache
def loader_options(loader: str) -> Mapping[str, Any]:
    """The type of each option that a loader takes behind split and root, by its name."""
    function = _function_of(loader)
    hints = get_type_hints(function)
    return {name: hints.get(name) for name in list(inspect.signature(function).parameters)[2:]}


def _function_of(loader: str) -> Callable[..., Corpus]:
    try:
        module = importlib.import_module(loader)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{loader}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(
            f"dataset.loader={loader} is not a module; name one such as datasets.sst"
        ) from None
    load: Callable[..., Corpus] | None = getattr(module, "load", None)
    if load is None:
        raise ConfigError(f"{loader} has no function load(split, root, **options); write one")
    return load


def mini_batches(
    corpus: Corpus,
    batch_size: int,
    n: int | None,
    seed: int,
    order: str = "shuffled",
    *,
    only_first: bool = False,
) -> list[tuple[Instance, ...]]:
    """Draw the fixed list of `n` full mini-batches (None: one pass without the rest).

    Past the corpus's end the same order starts again, so every mini-batch is full.

    order: "shuffled"; "file" keeps the file's order and ignores the seed; "length" puts instances
    of similar length together, for systems that pad: the shuffled ones of one pass are sorted by
    harness.values.instances.length_of, so that the seed decides between equals, and cut into
    mini-batches, which are then shuffled; what fills none is left out of every pass.

    only_first: whether "length" sorts the first n * batch_size instances alone, so that batch sizes
    whose n * batch_size is the same have the same instances, as they do in any other order.

    Raises ConfigError for a size below 1 or an unknown order.
    """
    size = len(corpus.instances)
    if n is None:
        n = max(1, size // max(1, batch_size))
    for name, value in (("batch_size", batch_size), ("n_mini_batches", n)):
        if value < 1:
            raise ConfigError(f"{name}={value} is not allowed; give at least 1")
    if order not in ORDERS:
        raise ConfigError(f"order={order} is unknown; choose one of {', '.join(ORDERS)}")
    sequence = np.arange(size) if order == "file" else shuffled(size, seed)
    if order == "length":
        sequence = sequence[: n * batch_size] if only_first else sequence
        sequence = _by_length(corpus.instances, sequence, batch_size, seed)
    chosen = sequence[np.arange(n * batch_size) % len(sequence)].reshape(n, batch_size)
    return [tuple(corpus.instances[index] for index in row) for row in chosen.tolist()]


def _by_length(
    instances: Sequence[Instance], sequence: Indices, batch_size: int, seed: int
) -> Indices:
    """Return full mini-batches of similarly long instances, one behind the other."""
    n_full = len(sequence) // batch_size
    if n_full == 0:
        return sequence
    lengths = [length_of(instances[index]) for index in sequence[: n_full * batch_size].tolist()]
    by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
    mini_batches = sequence[by_length].reshape(n_full, batch_size)
    result: Indices = mini_batches[shuffled(n_full, seed, batch_size)].reshape(-1)
    return result


def inputs_sha256(batches: Sequence[Sequence[Instance]]) -> str:
    """Hash every array of every instance, and where mini-batches begin: equal for equal inputs."""
    digest = hashlib.sha256()
    for batch in batches:
        digest.update(f"mini-batch {len(batch)};".encode())
        for instance in batch:
            for name in (item.name for item in fields(instance) if item.init):
                array = np.asarray(getattr(instance, name), dtype="<i4")
                digest.update(f"{name} {array.shape};".encode())
                digest.update(array.tobytes())
    return digest.hexdigest()


def arguments_sha256(**arguments: object) -> str:
    """Hash the arguments of a generator, which define its instances."""
    text = ";".join(f"{name}={value!r}" for name, value in sorted(arguments.items()))
    return hashlib.sha256(text.encode()).hexdigest()
