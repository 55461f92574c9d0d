"""Types of the configuration: what conf/bench.yaml and the YAML files of its groups may say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from harness.contracts.policy import LearningSettings
from harness.trials.spec import Limits, Timing


@dataclass
class SystemConfig:
    """conf/system/<name>.yaml; `adapter` is the module whose class Adapter runs it.

    python: the interpreter that measures it, where its framework needs an environment of its own.
    kind, slow, models and variant_of say where experiments show it, and as what:
    harness.planning.kinds.KnownSystem, which also checks them.
    """

    name: str = MISSING
    kind: str | None = None
    adapter: str = MISSING
    python: str | None = None
    label: str = MISSING
    slow: bool = False
    models: list[str] | None = None
    variant_of: str | None = None
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

    stand_in: the data set that the pipeline takes where this one is not on the machine; needs: the
    file of its folder that tells whether it is, null: the folder does.
    """

    name: str = MISSING
    loader: str = MISSING
    instance_kind: str = MISSING
    stand_in: str | None = None
    needs: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


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
    order: str = MISSING
    learning_rate: float = MISSING
    data_root: str = MISSING
    results_dir: str = MISSING
    out: str | None = None
    trace: str | None = None
    force: bool = MISSING
    bad_data: str = MISSING
    learning: LearningSettings = field(default_factory=LearningSettings)
    timing: Timing = field(default_factory=Timing)
    limits: Limits = field(default_factory=Limits)


def register_schema() -> None:
    """Make the types known to Hydra; conf/bench.yaml names them first in its defaults."""
    ConfigStore.instance().store(name="bench_schema", node=_schema())


def _schema() -> DictConfig:
    """The types as a configuration that can be written to.

    What is a frozen value elsewhere (Timing, Limits, LearningSettings) would be read-only here, so
    that neither a file nor the command line could change it.
    """
    schema = OmegaConf.structured(BenchConfig)
    assert isinstance(schema, DictConfig)
    for key in ("learning", "timing", "limits"):
        OmegaConf.set_readonly(schema[key], None)
    return schema
