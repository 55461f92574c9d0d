"""Types of the configuration: what conf/bench.yaml and the YAML files of its groups may say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING


@dataclass
class SystemConfig:
    """conf/system/<name>.yaml; `adapter` is the module whose class Adapter runs it."""

    name: str = MISSING
    adapter: str = MISSING
    label: str = MISSING
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class ModelConfig:
    """conf/model/<name>.yaml; `model` is the module that defines it."""

    name: str = MISSING
    model: str = MISSING
    label: str = MISSING
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class DatasetConfig:
    """conf/dataset/<name>.yaml; `loader` is the module that reads or generates it.

    stand_in: the data set that the pipeline takes where this one is not on the machine.
    """

    name: str = MISSING
    loader: str = MISSING
    instance_kind: str = MISSING
    stand_in: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class TimingConfig:
    """See harness.trials.spec.Timing."""

    min_seconds: float = MISSING
    max_seconds: float = MISSING
    n_mini_batches: int = MISSING
    n_warmup: int = MISSING
    min_passes: int = MISSING
    n_check_instances: int = MISSING


@dataclass
class LearningConfig:
    """See harness.contracts.policy.LearningSettings; file_sha256 follows from the file."""

    variant: str = MISSING
    fallback: str = MISSING
    trials: int = MISSING
    seed: int = MISSING
    file: str | None = None


@dataclass
class LimitsConfig:
    """See harness.trials.spec.Limits."""

    time_s: float = MISSING
    memory_bytes: int = MISSING


@dataclass
class BenchConfig:
    """conf/bench.yaml: one trial, or with `experiment` the grid of a paper artefact."""

    system: SystemConfig = field(default_factory=SystemConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    experiment: Any = None
    policy: str | None = None
    batch_size: int = MISSING
    hidden_size: int = MISSING
    embedding_size: int = MISSING
    mode: str = MISSING
    device: str = MISSING
    threads: int = MISSING
    seed: int = MISSING
    round: int = MISSING
    rounds: int | None = None
    scale: str | None = None
    split: str = MISSING
    learning_rate: float = MISSING
    data_root: str = MISSING
    results_dir: str = MISSING
    out: str | None = None
    force: bool = MISSING
    learning: LearningConfig = field(default_factory=LearningConfig)
    timing: TimingConfig = field(default_factory=TimingConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)


def register_schema() -> None:
    """Make the types known to Hydra; conf/bench.yaml names them first in its defaults."""
    ConfigStore.instance().store(name="bench_schema", node=BenchConfig)
