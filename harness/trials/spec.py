"""One point of the benchmark, fully resolved: what a worker process is given as plain JSON."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le

from harness.contracts.corpus import ORDERS
from harness.contracts.home import SPLITS
from harness.contracts.policy import LearningSettings, is_learned
from harness.errors import ConfigError
from harness.values.checked import (
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
from harness.values.precision import EXACT, PRECISIONS

MODES = ("train", "infer")
DEVICES = ("cpu", "cuda")
DEFAULT_ORDER = "shuffled"
LARGEST_FACTOR = 1e6  # between the speeds of two systems
LARGEST_RATE = 1e6  # no step of learning is longer
LARGEST_MEMORY_BYTES = 2**63 - 1
BAD_DATA = ("refuse", "record")  # what becomes of a trial on unusable data
_NOT_IDENTITY = {"identity": False}  # marks a field that does not change the work


def check_module_name(key: str, name: str) -> None:
    """Raise ConfigError for a text that cannot be the dotted name of a module."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"{key}={name} is not allowed; name a module, such as datasets.sst")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long and how often a trial is measured.

    A pass runs every mini-batch of the fixed list once: n_mini_batches of them, or as many as
    n_instances fill, where that is said: then every batch size measures the same instances. It
    has to be a multiple of the batch size, so that every mini-batch is full.

    Passes that do not count are made until the last ones agree: at least n_warmup and at most
    max_warmup, none once max_warmup_s have gone by; with n_warmup 0 there is none.

    Then passes without and with a mark behind each phase take turns, until min_seconds of timed
    work and min_passes without marks are reached, or max_seconds are over (one of either kind is
    always made).

    Raises ConfigError for a value out of range.
    """

    min_seconds: Seconds = 2.0
    max_seconds: Seconds = 60.0
    n_mini_batches: Count = 16
    n_instances: CountOrNone = 0  # 0: n_mini_batches decides
    n_warmup: CountOrNone = 1  # passes
    max_warmup: CountOrNone = 10  # passes
    max_warmup_s: Seconds = 1.0
    min_passes: Count = 3
    n_check_instances: Count = 4

    def __post_init__(self) -> None:
        check_fields(self, "timing.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a worker process may use before it is ended.

    Memory is the resident memory of its whole process tree, so that a page which a fork shares with
    its parent counts for each of them.
    """

    time_s: Annotated[float, Gt(0), Le(YEAR_S)] = 600.0
    # 0: four fifths of the machine's memory
    memory_bytes: Annotated[int, Ge(0), Le(LARGEST_MEMORY_BYTES)] = 0

    def __post_init__(self) -> None:
        check_fields(self, "limits.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """When a trial is measured no further: far behind those that it is screened with.

    rounds: the first ones, which decide. factor: that many times as long as the fastest is near
    enough. Raises ConfigError for a value out of range.
    """

    rounds: Count
    factor: Annotated[float, Ge(1), Le(LARGEST_FACTOR)]

    def __post_init__(self) -> None:
        check_fields(self, "screening.")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that a trial takes as they are typed, whatever system, model and data set it has."""

    policy: str | None = None  # None: the system's own
    split: Annotated[str, OneOf(SPLITS)] = "train"
    order: Annotated[str, OneOf(ORDERS)] = DEFAULT_ORDER  # see corpus.mini_batches
    batch_size: Size
    hidden_size: Size
    # 0: as hidden_size
    embedding_size: Annotated[int, Ge(0), Le(LARGEST_SIZE)] = 0
    mode: Annotated[str, OneOf(MODES)] = "train"
    device: Annotated[str, OneOf(DEVICES)] = "cpu"
    threads: Count = 1
    seed: Seed = 0
    learning_rate: Annotated[float, Ge(0), Le(LARGEST_RATE)] = 1e-3
    learning: LearningSettings = field(default_factory=LearningSettings)
    timing: Timing = field(default_factory=Timing)
    limits: Limits = field(default_factory=Limits, metadata=_NOT_IDENTITY)
    round: CountOrNone = field(default=0, metadata=_NOT_IDENTITY)
    data_root: Place = field(default="data", metadata=_NOT_IDENTITY)


@dataclass(frozen=True, kw_only=True)  # without slots: it remembers its trial_id
class TrialSpec(Settings):
    """One trial's round with everything resolved; raises ConfigError for a value out of range.

    Fields that are marked so do not change the work and are no part of its identity, nor is
    `learning` where the policy is not learned; all else is.
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
    # None: all its rounds are measured
    screening: Screening | None = field(default=None, metadata=_NOT_IDENTITY)
    # None: the interpreter that asks
    python: str | None = field(default=None, metadata=_NOT_IDENTITY)
    cache_dir: str | None = field(default=None, metadata=_NOT_IDENTITY)  # answers of the oracle
    command: str = field(default="", metadata=_NOT_IDENTITY)

    def __post_init__(self) -> None:
        check_fields(self)
        for key, module in (("system.adapter", self.adapter), ("dataset.loader", self.loader)):
            check_module_name(key, module)
        check_module_name("model.model", self.model_module)
        n_instances = self.timing.n_instances
        if n_instances % self.batch_size:
            raise ConfigError(
                f"timing.n_instances={n_instances} is no multiple of batch_size={self.batch_size};"
                " give one, so that every mini-batch is full"
            )

    @property
    def n_mini_batches(self) -> int:
        """How many mini-batches the fixed list has."""
        return self.timing.n_instances // self.batch_size or self.timing.n_mini_batches

    @property
    def precision(self) -> str:
        """How exact products are asked to be; words that are none of ours loosen no check."""
        asked = str(self.system_options.get("precision", EXACT))
        return asked if asked in PRECISIONS else EXACT

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that changes the work, as plain values."""
        names = (item.name for item in fields(self) if item.metadata.get("identity", True))
        values = {name: getattr(self, name) for name in names}
        values |= {"timing": asdict(self.timing), "learning": asdict(self.learning)}
        if self.order == DEFAULT_ORDER:
            del values["order"]  # records of before there was a choice stay those of this trial
        for name in _LATER_CHOICES:
            if values["timing"][name] == getattr(Timing(), name):
                del values["timing"][name]
        if is_learned(str(self.policy or self.system_options.get("policy"))):
            del values["learning"]["file"]  # its hash tells more than its name
        else:
            del values["learning"]
        return values | {"embedding_size": self.embedding_size or self.hidden_size}

    @cached_property
    def trial_id(self) -> str:
        """Path-safe text that names the trial, ending in a hash of its identity; no round in it."""
        text = json.dumps(self.identity, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        names = (self.system, *([self.policy] if self.policy else []), self.model, self.dataset)
        sizes = (f"bs{self.batch_size}", f"h{self.hidden_size}")
        rest = (self.mode, f"{self.device}{self.threads}", f"s{self.seed}", digest)
        return "-".join(re.sub(r"[^A-Za-z0-9_.]", "_", part) for part in (*names, *sizes, *rest))

    def with_round(self, round_: int) -> TrialSpec:
        """Return the same trial's other round."""
        return replace(self, round=round_)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that from_dict reads back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrialSpec:
        """Build from plain values; raises ConfigError for a key that no trial has."""
        return read(cls, values, owner="a trial")


_LATER_CHOICES = ("n_instances", "max_warmup", "max_warmup_s")  # of timing, as with order
