"""Contract of a corpus, and the fixed mini-batches that all systems of a trial share."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.home import Split, import_loader
from dynbatch.harness.contracts.options import check_options
from dynbatch.harness.errors import ConfigError, DataError
from dynbatch.harness.values.arrays import draw_permutation
from dynbatch.harness.values.checked import check_value
from dynbatch.harness.values.instances import Instance, compute_sort_key

Indices = NDArray[np.int64]

OWN_DATA = "your data"  # source of a file that the user names, dataset.path
OWN_SPLIT = "train"  # the only split of such a file
KEEP = "keep"
LAST = ("drop", KEEP)  # what happens to the last, partial mini-batch
FILE_ORDER = "file"
ORDERS = ("shuffled", FILE_ORDER, "length")
CLASSES, ANY = "classes", "any"
MAX_CHILDREN = "children"  # size of a corpus of trees that are not binary: their most children
BINARIZE, NONE, AUTO = "binarize", "none", "auto"  # a loader's option, and two of its values
LABELS = (CLASSES, "words", ANY)  # of instances: classes, next words, or what the user's file has


@dataclass(frozen=True, slots=True)
class Corpus:
    """Instances of one split, and the facts that a model needs about the corpus.

    Attributes:
        instances: Instances in the order of the file; may build each one lazily.
        sizes: Sizes of the tables and layers that a model needs, by name: "words" and "characters"
            (rows, including the row of unknown ones), "classes", or others.
        sha256: Hash of the split's bytes, or of a generator's arguments.
        source: Description for captions.
        skipped: Number of instances that were skipped, by reason.
        generated: Whether only the loader's arguments determine the instances, without files.
        label_names: Names of the classes in a file of the user's own.

    Raises:
        DataError: There are no instances, or a size is below 1.
    """

    name: str
    split: str
    instances: Sequence[Instance]
    sizes: Mapping[str, int]
    sha256: str
    source: str
    synthetic: bool = False
    instance_kind: str = "tree"
    skipped: Mapping[str, int] = field(default_factory=dict)
    generated: bool = False
    label_names: Sequence[str] = ()

    def __post_init__(self) -> None:
        for what, size in {"instances": len(self.instances), **self.sizes}.items():
            if size < 1:
                raise DataError(
                    f"corpus {self.name} ({self.split}) has {size} {what}; it needs at least 1"
                )

    def get_size(self, name: str) -> int:
        if name not in self.sizes:
            raise DataError(
                f"corpus {self.name} ({self.split}) has no size {name}; choose from"
                f" {', '.join(self.sizes) or 'none'}"
            )
        return self.sizes[name]


def load_corpus(loader: str, split: str, root: Path | None, **options: Any) -> Corpus:
    """Load one split with the module named `loader` (e.g. "dynbatch.datasets.sst").

    With the option `path`, the loader reads that file of the user's own in place of the corpus's.

    Raises:
        ConfigError: The loader is unknown, or the split or an option is not allowed.
        DataError: The data is invalid.
    """
    check_value("split", split, Split)
    check_loader_options(loader, options)
    path = options.get("path")
    if path is not None and split != OWN_SPLIT:
        raise ConfigError(
            f"split={split} is not allowed: expected {OWN_SPLIT}, because dataset.path={path} has"
            " no splits; remove split"
        )
    corpus = _find_load_function(loader)(split, root, **options)
    return corpus if path is None else replace(corpus, name=Path(path).name, source=OWN_DATA)


def check_loader_options(loader: str, options: Mapping[str, Any]) -> None:
    """Check that a loader exists and takes the given options."""
    check_options("dataset", list_loader_options(loader), options, loader)


@functools.cache
def list_loader_options(loader: str) -> Mapping[str, Any]:
    """Return the type of each option that a loader takes after split and root, by name."""
    function = _find_load_function(loader)
    hints = get_type_hints(function, include_extras=True)
    return {name: hints.get(name) for name in list(inspect.signature(function).parameters)[2:]}


def _find_load_function(loader: str) -> Callable[..., Corpus]:
    load: Callable[..., Corpus] | None = getattr(import_loader(loader), "load", None)
    if load is None:
        raise ConfigError(f"{loader} has no function load(split, root, **options); add it")
    return load


def draw_mini_batches(
    corpus: Corpus,
    batch_size: int,
    n: int,
    seed: int,
    order: str = "shuffled",
    *,
    only_first: bool = False,
    last: str = "drop",
) -> list[tuple[Instance, ...]]:
    """Draw the fixed list of mini-batches; none has an instance twice.

    After the end of the corpus the same order starts again, so that every mini-batch is full. With
    last="keep", the list ends with the corpus instead, with a partial mini-batch.

    Args:
        n: Number of mini-batches.
        order: "shuffled"; "file" for the order of the file, which ignores the seed; or "length",
            which groups instances of similar length, for systems that pad. "length" sorts the
            shuffled instances of one pass by their sort keys, cuts
            them into mini-batches and shuffles these. A remainder is dropped.
        only_first: Whether "length" sorts only the first n * batch_size instances, so that batch
            sizes with equal n * batch_size have the same instances, as in the other orders.

    Raises:
        DataError: The corpus has fewer instances than a mini-batch.
    """
    size = len(corpus.instances)
    if size < batch_size and last == "drop":
        raise DataError(
            f"dataset {corpus.name} has {size} instances in split {corpus.split}: expected at least"
            f" batch_size={batch_size}; lower batch_size, set timing.last=keep or choose a larger"
            " dataset"
        )
    sequence = np.arange(size) if order == FILE_ORDER else draw_permutation(size, seed)
    if order == "length":
        sequence = sequence[: n * batch_size] if only_first else sequence
        grouped = _group_by_length(corpus.instances, sequence, batch_size, seed)
        sequence = (
            grouped if last == "drop" else np.concatenate([grouped, sequence[len(grouped) :]])
        )
    if last != KEEP:
        sequence = np.resize(sequence, n * batch_size)  # repeated, or cut
    chosen = [corpus.instances[index] for index in sequence[: n * batch_size].tolist()]
    return [tuple(chosen[k : k + batch_size]) for k in range(0, len(chosen), batch_size)]


def _group_by_length(
    instances: Sequence[Instance], sequence: Indices, batch_size: int, seed: int
) -> Indices:
    """Return the indices of full mini-batches of similarly long instances, concatenated."""
    n_full = len(sequence) // batch_size
    lengths = [
        compute_sort_key(instances[index]) for index in sequence[: n_full * batch_size].tolist()
    ]
    by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
    mini_batches = sequence[by_length].reshape(n_full, batch_size)
    result: Indices = mini_batches[draw_permutation(n_full, seed, batch_size)].reshape(-1)
    return result


def hash_inputs(batches: Sequence[Sequence[Instance]]) -> str:
    """Hash every array of every instance and the mini-batches' sizes; equal for equal inputs."""
    digest = hashlib.sha256()
    for batch in batches:
        digest.update(f"mini-batch {len(batch)};".encode())
        for instance in batch:
            for name in (item.name for item in fields(instance) if item.init):
                array = np.asarray(getattr(instance, name), dtype="<i4")
                digest.update(f"{name} {array.shape};".encode())
                digest.update(array.tobytes())
    return digest.hexdigest()


def hash_arguments(**arguments: object) -> str:
    """Hash the arguments of a generator, which define its instances."""
    text = ";".join(f"{name}={value!r}" for name, value in sorted(arguments.items()))
    return hashlib.sha256(text.encode()).hexdigest()
