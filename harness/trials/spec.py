"""One point of the benchmark, fully resolved: what a worker process is given as plain JSON."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from harness.contracts.corpus import ORDERS
from harness.contracts.home import SPLITS
from harness.contracts.policy import LearningSettings, is_learned
from harness.errors import ConfigError
from harness.values.bounds import (
    LARGEST_COUNT,
    LARGEST_MEMORY_BYTES,
    LARGEST_RATE,
    LARGEST_SEED,
    LARGEST_SIZE,
    YEAR_S,
    check_count,
    check_number,
)
from harness.values.precision import EXACT, PRECISIONS

MODES = ("train", "infer")
DEVICES = ("cpu", "cuda")
DEFAULT_ORDER = "shuffled"
LARGEST_FACTOR = 1e6  # between the speeds of two systems
# How a worker says that the configuration, or the data, is wrong: EX_USAGE, EX_DATAERR of sysexits.
USAGE_EXIT, DATA_EXIT, OUTPUT_EXIT = 64, 65, 66
BAD_DATA = ("refuse", "record")  # what becomes of a trial on unusable data


def _check_counts(
    owner: object, lowest: int, *names: str, above: str = "", highest: int = LARGEST_COUNT
) -> None:
    for name in names:
        check_count(f"{above}{name}", getattr(owner, name), lowest, highest)


def _check_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name}={value} is not allowed; choose one of {', '.join(allowed)}")


def _check_names(owner: object, *names: str) -> None:
    for name in names:
        if not getattr(owner, name):
            raise ConfigError(f"{name} is empty; give a name, or leave {name} out")


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

    min_seconds: float = 2.0
    max_seconds: float = 60.0
    n_mini_batches: int = 16
    n_instances: int = 0  # 0: n_mini_batches decides
    n_warmup: int = 1  # passes
    max_warmup: int = 10  # passes
    max_warmup_s: float = 1.0
    min_passes: int = 3
    n_check_instances: int = 4

    def __post_init__(self) -> None:
        for name in ("min_seconds", "max_seconds", "max_warmup_s"):
            check_number(f"timing.{name}", getattr(self, name), 0, YEAR_S)
        _check_counts(self, 0, "n_warmup", "n_instances", "max_warmup", above="timing.")
        _check_counts(self, 1, "n_mini_batches", "min_passes", above="timing.")
        _check_counts(self, 1, "n_check_instances", above="timing.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a worker process may use before it is ended; memory counts its whole process tree."""

    time_s: float = 600.0
    memory_bytes: int = 0  # 0: four fifths of the machine's memory

    def __post_init__(self) -> None:
        check_number("limits.time_s", self.time_s, 0, YEAR_S)
        if self.time_s == 0:
            raise ConfigError(f"limits.time_s={self.time_s} is not allowed; give seconds above 0")
        check_count("limits.memory_bytes", self.memory_bytes, 0, LARGEST_MEMORY_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """When a trial is measured no further: far behind those that it is screened with.

    rounds: the first ones, which decide. factor: that many times as long as the fastest is near
    enough. Raises ConfigError for a value out of range.
    """

    rounds: int
    factor: float

    def __post_init__(self) -> None:
        _check_counts(self, 1, "rounds", above="screening.")
        check_number("screening.factor", self.factor, 1, LARGEST_FACTOR)


@dataclass(frozen=True, kw_only=True)  # without slots: it remembers its trial_id
class TrialSpec:
    """One trial's round with everything resolved; raises ConfigError for a value out of range.

    `python`, `data_root`, `limits`, `screening`, `round` and `command` do not change the work and
    are no part of its identity, nor is `learning` where the policy is not learned; all else is.
    """

    system: str
    adapter: str  # module with the class Adapter
    system_options: Mapping[str, Any] = field(default_factory=dict)
    policy: str | None = None  # None: the system's own
    model: str
    model_module: str
    model_options: Mapping[str, Any] = field(default_factory=dict)
    dataset: str
    loader: str  # module with the function load
    dataset_options: Mapping[str, Any] = field(default_factory=dict)
    split: str = "train"
    order: str = DEFAULT_ORDER  # of instances, see harness.contracts.corpus.mini_batches
    batch_size: int
    hidden_size: int
    embedding_size: int = 0  # 0: as hidden_size
    mode: str = "train"
    device: str = "cpu"
    threads: int = 1
    seed: int = 0
    learning_rate: float = 1e-3
    learning: LearningSettings = field(default_factory=LearningSettings)
    timing: Timing = field(default_factory=Timing)
    limits: Limits = field(default_factory=Limits)
    screening: Screening | None = None  # None: all its rounds are measured
    round: int = 0
    python: str | None = None  # None: the interpreter that asks
    data_root: str = "data"
    cache_dir: str | None = None  # answers of the oracle
    command: str = ""

    def __post_init__(self) -> None:
        _check_one_of("mode", self.mode, MODES)
        _check_one_of("device", self.device, DEVICES)
        _check_one_of("order", self.order, ORDERS)
        _check_one_of("split", self.split, SPLITS)
        _check_names(self, "system", "model", "dataset", "data_root")
        for key, module in (("system.adapter", self.adapter), ("dataset.loader", self.loader)):
            check_module_name(key, module)
        check_module_name("model.model", self.model_module)
        _check_counts(self, 1, "batch_size", "hidden_size", highest=LARGEST_SIZE)
        _check_counts(self, 0, "embedding_size", highest=LARGEST_SIZE)
        _check_counts(self, 1, "threads")
        _check_counts(self, 0, "round")
        _check_counts(self, 0, "seed", highest=LARGEST_SEED)
        check_number("learning_rate", self.learning_rate, 0, LARGEST_RATE)
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
        names = (item.name for item in fields(self) if item.name not in _NOT_IDENTITY)
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
        unknown = sorted(set(values) - {item.name for item in fields(cls)})
        if unknown:
            raise ConfigError(f"a trial has no {', '.join(unknown)}; write it with this version")
        plain = dict(values)
        plain["timing"] = Timing(**plain.get("timing", {}))
        plain["limits"] = Limits(**plain.get("limits", {}))
        plain["learning"] = LearningSettings(**plain.get("learning", {}))
        if plain.get("screening") is not None:
            plain["screening"] = Screening(**plain["screening"])
        return cls(**plain)


_LATER_CHOICES = ("n_instances", "max_warmup", "max_warmup_s")  # of timing, as with order
_NOT_IDENTITY = frozenset(
    {"python", "limits", "screening", "round", "data_root", "cache_dir", "command"}
)
