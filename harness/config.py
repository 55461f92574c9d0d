"""Typed configuration: Hydra's YAML files checked against dataclasses, then resolved to trials."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.errors import ConfigError
from harness.grid import CONF_DIR
from harness.machine import has_cuda_device, usable_cpus
from harness.policies import check_policy_name
from harness.policies.learning import LearningSettings
from harness.trial import Limits, Timing, TrialSpec
from harness.workload import build_model

CONFIG_NAME = "bench"
GROUPS = ("system", "model", "dataset", "experiment")


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
    """See harness.trial.Timing."""

    min_seconds: float = MISSING
    max_seconds: float = MISSING
    n_mini_batches: int = MISSING
    n_warmup: int = MISSING
    min_passes: int = MISSING
    n_check_instances: int = MISSING


@dataclass
class LearningConfig:
    """See harness.policies.learning.LearningSettings; file_sha256 follows from the file."""

    variant: str = MISSING
    fallback: str = MISSING
    trials: int = MISSING
    seed: int = MISSING
    file: str | None = None


@dataclass
class LimitsConfig:
    """See harness.trial.Limits."""

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


def quote_null(override: str) -> str:
    """Write `system=null` so that Hydra takes the name of a system, not the absence of a value."""
    key, equals, value = override.partition("=")
    if key != "system" or not equals:
        return override
    names = ("'null'" if name.strip() == "null" else name for name in value.split(","))
    return f"{key}={','.join(names)}"


_UNKNOWN_CHOICE = re.compile(
    r"Could not find '(?P<group>\w+)/(?P<name>[^']*)'\s+Available options in '\w+':(?P<known>.*?)"
    r"(Config search path|$)",
    re.DOTALL,
)
_NOISE = ("full_key:", "object_type=", "reference_type=", "Set the environment variable")


def one_line(error: Exception) -> str:
    """Return what Hydra or OmegaConf say as one line: what was found, what is allowed."""
    unknown = _UNKNOWN_CHOICE.search(str(error))
    if unknown:
        known = ", ".join(unknown["known"].split())
        return f"{unknown['group']}={unknown['name']} is unknown; choose one of: {known}"
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    lines = [line.strip() for line in f"{error}\n{cause}".splitlines()]
    text = " ".join(dict.fromkeys(x for x in lines if x and not x.startswith(_NOISE)))
    key = getattr(cause, "full_key", None)
    advice = "`bench --cfg job` prints every key and its value"
    return f"{key}: {text}; {advice}" if key else f"{text}; {advice}"


@contextmanager
def hydra_errors() -> Iterator[None]:
    """Turn Hydra's errors into ConfigError with one line."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(one_line(error)) from error


class Composer:
    """Composes many configurations quickly: Hydra once per choice of groups, values merged after.

    A composition by Hydra costs tens of milliseconds and a grid has hundreds of trials.
    """

    def __init__(self, conf_dir: Path = CONF_DIR) -> None:
        self._conf_dir = conf_dir
        self._composed: dict[tuple[str, ...], DictConfig] = {}

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """Compose what `bench OVERRIDES` would; raises ConfigError for a wrong override."""
        overrides = [quote_null(text) for text in overrides]
        groups = tuple(text for text in overrides if text.partition("=")[0] in GROUPS)
        values = [text for text in overrides if text.partition("=")[0] not in GROUPS]
        with hydra_errors():
            if any(text.startswith(("+", "~")) for text in values):
                return self._by_hydra(tuple(overrides))
            base = self._by_hydra(groups)
            merged = OmegaConf.merge(base, OmegaConf.from_dotlist(values))
        assert isinstance(merged, DictConfig)
        return merged

    def _by_hydra(self, overrides: tuple[str, ...]) -> DictConfig:
        if overrides not in self._composed:
            register_schema()
            GlobalHydra.instance().clear()
            with initialize_config_dir(str(self._conf_dir), version_base="1.3"):
                self._composed[overrides] = compose(CONFIG_NAME, overrides=list(overrides))
        return self._composed[overrides]


def choices_of(group: str, conf_dir: Path = CONF_DIR) -> tuple[str, ...]:
    """Names that a group of the configuration offers."""
    return tuple(sorted(path.stem for path in (conf_dir / group).glob("*.yaml")))


def spec_of(config: DictConfig, command: str = "") -> TrialSpec:
    """Resolve a configuration to its trial.

    Raises ConfigError for an unknown name, a value out of range, a model and a data set that do not
    fit together, or a device that is not there.
    """
    with hydra_errors():
        plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    _refuse_unknown_keys(plain, BenchConfig())
    shared = ("batch_size", "hidden_size", "embedding_size", "mode", "device", "threads", "seed")
    more = ("round", "split", "learning_rate", "policy", "data_root")
    spec = TrialSpec(
        system=plain["system"]["name"],
        adapter=plain["system"]["adapter"],
        system_options=plain["system"]["options"],
        model=plain["model"]["name"],
        model_module=plain["model"]["model"],
        model_options=plain["model"]["options"],
        dataset=plain["dataset"]["name"],
        loader=plain["dataset"]["loader"],
        dataset_options=plain["dataset"]["options"],
        learning=_learning(plain["learning"]),
        timing=Timing(**plain["timing"]),
        limits=Limits(**plain["limits"]),
        cache_dir=str(Path(plain["results_dir"]) / ".oracle"),
        command=command,
        **{name: plain[name] for name in (*shared, *more)},
    )
    _check(spec, plain["dataset"]["instance_kind"])
    return spec


def _learning(plain: Mapping[str, Any]) -> LearningSettings:
    """A saved policy is identified by what is in its file."""
    if plain["file"] is None:
        return LearningSettings(**plain)
    try:
        digest = hashlib.sha256(Path(plain["file"]).read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(
            f"learning.file={plain['file']} cannot be read: {error.strerror}; name a saved policy"
        ) from error
    return LearningSettings(**plain, file_sha256=digest)


def _refuse_unknown_keys(plain: Mapping[str, Any], schema: Any, above: str = "") -> None:
    """Hydra's `+key=value` adds what no type knows; it would be ignored without a word."""
    known = [item.name for item in fields(schema)]
    for key, value in plain.items():
        if key not in known:
            raise ConfigError(
                f"{above}{key} is not in the configuration; choose one of: {', '.join(known)}"
            )
        if is_dataclass(getattr(schema, key)):
            _refuse_unknown_keys(value, getattr(schema, key), f"{above}{key}.")


def _check(spec: TrialSpec, instance_kind: str) -> None:
    if spec.policy is not None:
        check_policy_name(spec.policy)
    if spec.policy is not None and "policy" not in spec.system_options:
        raise ConfigError(
            f"policy={spec.policy}, but system={spec.system} batches in its own way; leave policy"
            " out, or choose a system of the shared core"
        )
    wanted = build_model(spec, vocab_size=1, n_classes=1).instance_kind
    if wanted != instance_kind:
        raise ConfigError(
            f"model={spec.model} takes instances of kind {wanted}, but dataset={spec.dataset} has"
            f" {instance_kind}; choose a model and a data set of one kind"
        )
    n_cpus = len(usable_cpus())
    if spec.threads > n_cpus:
        raise ConfigError(
            f"threads={spec.threads} is not allowed: this machine lets us use {n_cpus} CPUs;"
            f" give 1 to {n_cpus}"
        )
    if spec.device == "cuda" and not has_cuda_device():
        raise ConfigError("device=cuda, but no NVIDIA device is visible; use device=cpu")


def specs_of(
    override_lists: Iterable[Sequence[str]], extra: Sequence[str] = (), conf_dir: Path = CONF_DIR
) -> dict[str, TrialSpec]:
    """Resolve a grid's override lists, each with `extra` behind it, to trials by trial_id.

    Points that come out equal, within an experiment or across several, are one trial.
    """
    composer = Composer(conf_dir)
    specs = (spec_of(composer.compose([*one, *extra])) for one in override_lists)
    return {spec.trial_id: spec for spec in specs}
