"""Fully resolved settings of one trial, which a worker process receives as JSON."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le

from dynbatch.harness.contracts.corpus import LAST, ORDERS
from dynbatch.harness.contracts.home import Split
from dynbatch.harness.contracts.policy import LearningSettings, is_learned
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.values.checked import (
    LARGEST_SIZE,
    YEAR_S,
    Count,
    CountOrNone,
    OneOf,
    Place,
    Seconds,
    Seed,
    Size,
    Text,
    check_fields,
    read,
)
from dynbatch.harness.values.precision import EXACT, PRECISIONS

MODES = ("train", "infer")
DEVICES = ("cpu", "cuda")
DEFAULT_ORDER = "shuffled"
DEFAULT_LAST = "drop"
LARGEST_RATE = 1e6  # learning rate
LARGEST_MEMORY_BYTES = 2**63 - 1
ON_INVALID_DATA = ("fail", "record")  # handling of a trial with invalid data
_NOT_IDENTITY = {"identity": False}  # marks a field that does not change the work
# Fields that define the system and the measuring time; all other fields define the point.
_NOT_POINT = ("system", "adapter", "system_options", "policy", "learning", "timing")


def check_module_name(key: str, name: str) -> None:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(
            f"{key}={name} is not allowed: expected a module such as dynbatch.datasets.sst"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Duration of a trial's measurement, and its numbers of passes and instances.

    A pass runs every mini-batch of the fixed list once.

    Warm-up passes run until the last ones agree: at least n_warmup and at most max_warmup passes,
    and none starts after max_warmup_s seconds. If n_warmup is 0, warm-up is skipped.

    Then the systems of a block run passes in turns; one turn of four marks its phases. They end
    when min_passes unmarked turns and min_seconds of timed work are reached and `precision`, too,
    or twice min_seconds, or max_seconds of timed work. At least one turn of each kind runs.

    Attributes:
        n_mini_batches: Mini-batches of the fixed list, unless n_instances is given.
        n_instances: Instances of the fixed list, a multiple of the batch size, so that all batch
            sizes measure the same instances; 0 if n_mini_batches applies.
        last: see corpus.draw_mini_batches.
        precision: Standard error of the logarithm of a system's ratio to the fastest one of its
            block, or of its own time if it is alone, at which its passes end.
    """

    min_seconds: Seconds = 2.0
    max_seconds: Seconds = 60.0
    n_mini_batches: Count = 16
    n_instances: CountOrNone = 0  # 0: n_mini_batches applies
    n_warmup: CountOrNone = 1  # passes
    max_warmup: CountOrNone = 10  # passes
    max_warmup_s: Seconds = 1.0
    min_passes: Count = 3
    n_check_instances: Count = 4
    last: Annotated[str, OneOf(LAST)] = DEFAULT_LAST
    precision: Annotated[float, Gt(0), Le(1)] = 0.01

    def __post_init__(self) -> None:
        check_fields(self, "timing.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a worker process, which is ended if it exceeds one.

    Memory is the resident memory of its whole process tree. A page that a fork shares with its
    parent counts for both.
    """

    time_s: Annotated[float, Gt(0), Le(YEAR_S)] | None = 600.0  # None: no limit
    # 0: four fifths of the machine's memory
    memory_bytes: Annotated[int, Ge(0), Le(LARGEST_MEMORY_BYTES)] = 0

    def __post_init__(self) -> None:
        check_fields(self, "limits.")

    @property
    def longest_s(self) -> float:
        """Time limit in seconds; infinite without one."""
        return math.inf if self.time_s is None else self.time_s


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that a trial takes unchanged, whatever its system, model and dataset."""

    policy: str | None = None  # None: the system's own
    split: Split = "train"
    order: Annotated[str, OneOf(ORDERS)] = DEFAULT_ORDER  # see corpus.draw_mini_batches
    batch_size: Size
    hidden_size: Size
    # 0: as hidden_size
    embedding_size: Annotated[int, Ge(0), Le(LARGEST_SIZE)] = 0
    mode: Annotated[str, OneOf(MODES)] = "train"
    device: Annotated[str, OneOf(DEVICES)] = "cpu"
    threads: Count = 1
    seed: Seed = 0
    learning_rate: Annotated[float, Gt(0), Le(LARGEST_RATE)] = 1e-3
    learning: LearningSettings = field(default_factory=LearningSettings)
    timing: Timing = field(default_factory=Timing)
    limits: Limits = field(default_factory=Limits, metadata=_NOT_IDENTITY)
    round: CountOrNone = field(default=0, metadata=_NOT_IDENTITY)
    data_root: Place = field(default="data", metadata=_NOT_IDENTITY)


@dataclass(frozen=True, kw_only=True)  # without slots, to cache properties
class TrialSpec(Settings):
    """One round of a trial, with all settings resolved.

    Fields marked with _NOT_IDENTITY do not change the work and are not part of the identity, and
    neither is `learning` if the policy is not learned.
    """

    system: Text
    adapter: str  # module with the class Adapter
    system_options: Mapping[str, Any] = field(default_factory=dict)
    model: Text
    model_module: str
    model_options: Mapping[str, Any] = field(default_factory=dict)
    dataset: Text
    loader: str  # module with the function load
    dataset_options: Mapping[str, Any] = field(default_factory=dict)
    # None: the interpreter of the parent
    python: str | None = field(default=None, metadata=_NOT_IDENTITY)
    cache_dir: str | None = field(default=None, metadata=_NOT_IDENTITY)  # results of the reference
    command: str = field(default="", metadata=_NOT_IDENTITY)

    def __post_init__(self) -> None:
        check_fields(self)
        for key, module in (("system.adapter", self.adapter), ("dataset.loader", self.loader)):
            check_module_name(key, module)
        check_module_name("model.model", self.model_module)
        n_instances = self.timing.n_instances
        if n_instances % self.batch_size:
            raise ConfigError(
                f"timing.n_instances={n_instances} is not a multiple of"
                f" batch_size={self.batch_size}; set one, so that every mini-batch is full"
            )

    @property
    def n_mini_batches(self) -> int:
        return self.timing.n_instances // self.batch_size or self.timing.n_mini_batches

    @property
    def precision(self) -> str:
        """Requested precision of matmuls; unknown values count as exact and loosen no check."""
        asked = str(self.system_options.get("precision", EXACT))
        return asked if asked in PRECISIONS else EXACT

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that changes the work, as plain values."""
        names = (item.name for item in fields(self) if item.metadata.get("identity", True))
        values = {name: getattr(self, name) for name in names}
        options = {key: value for key, value in self.dataset_options.items() if key != "path"}
        values |= {"dataset_options": options}  # its hash identifies a file better than its path
        values |= {"timing": asdict(self.timing), "learning": asdict(self.learning)}
        if self.order == DEFAULT_ORDER:
            del values["order"]  # the trial id stays the one from before this option existed
        for name in _LATER_CHOICES:
            if values["timing"][name] == getattr(Timing(), name):
                del values["timing"][name]
        if is_learned(str(self.policy or self.system_options.get("policy"))):
            del values["learning"]["file"]  # its hash identifies it better than its name
        else:
            del values["learning"]
        return values | {"embedding_size": self.embedding_size or self.hidden_size}

    @cached_property
    def trial_id(self) -> str:
        """Path-safe name of the trial that ends in a hash of its identity; excludes the round."""
        text = json.dumps(self.identity, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        names = (self.system, *([self.policy] if self.policy else []), self.model, self.dataset)
        sizes = (f"bs{self.batch_size}", f"h{self.hidden_size}")
        rest = (self.mode, f"{self.device}{self.threads}", f"s{self.seed}", digest)
        return "-".join(re.sub(r"[^A-Za-z0-9_.]", "_", part) for part in (*names, *sizes, *rest))

    @cached_property
    def point(self) -> str:
        """The point of the trial as text: everything except the system and the measuring time."""
        rest = {name: value for name, value in self.identity.items() if name not in _NOT_POINT}
        return json.dumps(rest, sort_keys=True, default=str)

    def replace_round(self, round_: int) -> TrialSpec:
        return replace(self, round=round_)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values from which from_dict builds an equal spec."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrialSpec:
        return read(cls, values, owner="a trial")


# Newer timing options, like order.
_LATER_CHOICES = ("n_instances", "max_warmup", "max_warmup_s", "last", "precision")
