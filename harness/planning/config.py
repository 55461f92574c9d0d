"""Configuration of a trial: its types, its composition from conf/, and its resolution to a trial.

Settings map keys with dots between levels to values. They come from a command line, a grid or a
program.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from dynbatch.harness.contracts.corpus import ANY, CLASSES, LABELS, OWN_SPLIT, check_loader_options
from dynbatch.harness.contracts.policy import LearningSettings, check_policy_name
from dynbatch.harness.errors import ConfigError, suggest_name
from dynbatch.harness.machine.files import read_regular
from dynbatch.harness.planning.grid import SCALES
from dynbatch.harness.planning.kinds import SystemFile
from dynbatch.harness.planning.yaml_files import (
    GROUPS,
    NAMED,
    SEE,
    convert_hydra_errors,
    find_choice,
    find_datasets,
    find_group_of_option,
    find_models,
    list_choices,
    list_formats,
    read_mapping,
    resolve_references,
)
from dynbatch.harness.trials import spec as trial_spec
from dynbatch.harness.trials.spec import ON_INVALID_DATA, TrialSpec
from dynbatch.harness.trials.workload import build_model, choose_arity
from dynbatch.harness.values import checked
from dynbatch.harness.values.checked import OneOf, Place, Text, read
from dynbatch.harness.values.paths import CONF_DIR, expand_home, find_data_root

CONFIG_NAME = "bench"
MAX_ROUNDS = 1000
LARGEST_CPU = 2**16
OPTIONS = tuple(f"{group}.options." for group in NAMED)
Options = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """Content of conf/model/<name>.yaml; `model` is the module that defines the network."""

    name: Text
    model: str
    label: str = ""
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DatasetFile:
    """Content of conf/dataset/<name>.yaml.

    Attributes:
        loader: module that reads or generates the dataset.
        fallback: dataset that the pipeline takes if this one is not available.
        probe_file: file in the dataset's directory that exists if the dataset is available; None:
            the dataset is available if its directory exists.
        first_line: for a format of the user's own files, the regular expression that their first
            line matches; None for a dataset with files of its own.
        labels: labels of its instances, as in Model.labels; "any" fits every model.
    """

    name: Text
    loader: str
    instance_kind: str
    fallback: str | None = None
    probe_file: str | None = None
    first_line: str | None = None
    path: Place | None = None
    labels: Annotated[str, OneOf(LABELS)] = CLASSES
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BenchConfig(trial_spec.Settings):
    """Content of conf/bench.yaml: one trial or, with `experiment`, the grid of an experiment."""

    system: SystemFile
    model: ModelFile
    dataset: DatasetFile
    experiment: str | None = None
    rounds: Annotated[int, Ge(1), Le(MAX_ROUNDS)] | None = None
    scale: Annotated[str, OneOf(SCALES)] | None = None
    results_dir: Place
    out: Place | None = None
    cpu: Annotated[int, Ge(0), Le(LARGEST_CPU)] | None = None
    force: bool
    on_invalid_data: Annotated[str, OneOf(ON_INVALID_DATA)]


_FILES: Mapping[str, type[Any]] = {
    "system": SystemFile,
    "model": ModelFile,
    "dataset": DatasetFile,
}


OmegaConf.register_new_resolver(
    "bench.data_root", lambda: str(find_data_root(os.environ)), replace=True
)


class Composer:
    """Composition of the files of conf/ with settings; each file is read once."""

    def __init__(self, conf_dir: Path = CONF_DIR) -> None:
        self.conf_dir = conf_dir
        self._read: dict[tuple[str, str], dict[str, Any]] = {}
        self._built: dict[str, Any] = {}  # dataclasses of levels, which many trials share
        self._trials: dict[str, TrialSpec] = {}

    def compose_config(self, settings: Mapping[str, Any]) -> BenchConfig:
        """Return the configuration that `bench` uses for settings."""
        base = self._read_file("", CONFIG_NAME)
        chosen = base["defaults"] | {key: settings[key] for key in GROUPS if key in settings}
        config = {key: base[key] for key in base if key != "defaults"}
        for group in NAMED:
            config[group] = self._read_file(group, self._check_choice(group, chosen[group]))
        if "experiment" in settings:
            config["experiment"] = self._check_choice("experiment", chosen["experiment"])
        for key, value in settings.items():
            if key not in GROUPS:
                put(config, key, value)
        for group in NAMED:
            name = config[group]["name"]
            if name != chosen[group] and name in list_choices(group, self.conf_dir):
                raise ConfigError(
                    f"{group}.name={name} is the name of another {group}; set {group}={name}"
                )
        if "${" in repr(config):
            return read(BenchConfig, resolve_references(config))
        return read(BenchConfig, {key: self._build(key, config[key]) for key in config})

    def _build(self, key: str, value: Any) -> Any:
        """Check and build the dataclass of a level, once for equal ones; return others as is."""
        kind = checked.find_field_types(BenchConfig).get(key)
        if not (isinstance(kind, type) and is_dataclass(kind)):
            return value
        text = f"{key}={value!r}"
        if text not in self._built:
            self._built[text] = read(kind, value, f"{key}.")
        return self._built[text]

    def resolve_trial(self, settings: Mapping[str, Any]) -> TrialSpec:
        """Resolve settings to their trial, once for equal settings."""
        text = repr(settings)
        if text not in self._trials:
            self._trials[text] = resolve_spec(self.compose_config(settings), self.conf_dir)
        return self._trials[text]

    def _check_choice(self, group: str, name: object) -> str:
        if isinstance(name, str) and (group, name) in self._read:
            return name
        if not isinstance(name, str) or "/" in name:  # a name, not a path to a file
            known = ", ".join(list_choices(group, self.conf_dir))
            raise ConfigError(
                f"{group}={checked.show(name)} is not a name; choose one of: {known}, or remove"
                f" {group}"
            )
        path = find_choice(group, name, self.conf_dir)
        given = read_mapping(path).get("name")
        if group in NAMED and given != name:  # records would be attributed to another system
            raise ConfigError(f"{path} has name: {given}; set name: {name}, the name of the file")
        return name

    def _read_file(self, group: str, name: str) -> dict[str, Any]:
        """Return a file's content; Hydra resolves a `defaults` list."""
        if (group, name) not in self._read:
            path = self.conf_dir / group / f"{name}.yaml"
            content = read_mapping(path)
            if not group:
                content = _parse_base(content, path)
            elif "defaults" in content:
                whole = compose_with_hydra(self.conf_dir, [f"{group}={name}"])
                content = whole[group]
            content = resolve_references(content, only_environment=True)
            if group in _FILES:
                given = {k: v for k, v in content.items() if v is not None or k != "options"}
                content = {"options": {}} | given
                file = f"{group}/{name}.yaml"
                read(_FILES[group], content, f"{file}: ", file)
            self._read[group, name] = content
        return self._read[group, name]


def _parse_base(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the keys of bench.yaml, with its defaults list as a mapping of groups to names."""
    chosen: dict[str, Any] = {}
    for entry in content.get("defaults") or ():
        if isinstance(entry, Mapping):
            chosen |= {str(key).removeprefix("optional "): name for key, name in entry.items()}
    missing = [group for group in NAMED if not chosen.get(group)]
    if missing:
        raise ConfigError(f"{path} has no default {missing[0]}; add it to its defaults")
    rest = {key: value for key, value in content.items() if key not in ("defaults", "hydra")}
    return rest | {"defaults": {group: chosen.get(group) for group in GROUPS}}


def put(config: dict[str, Any], key: str, value: Any) -> None:
    """Set a key of the configuration, with dots between levels; `+key` adds an option.

    Levels are copied before they are changed.

    Raises:
        ConfigError: for an unknown key, and for an option that is not in its file without the `+`.
    """
    name = key.lstrip("+")
    check_key(name)
    if name == "system.options.policy":
        name = "policy"
    *above, last = name.split(".")
    inner: Any = config
    for part in above:
        below = inner.get(part)
        inner[part] = dict(below) if isinstance(below, Mapping) else {}
        inner = inner[part]
    if isinstance(value, Mapping) and isinstance(inner.get(last), dict):
        for part, below in value.items():
            put(config, f"{'+' * key.startswith('+')}{name}.{part}", below)
        return
    is_option = name.startswith(OPTIONS)
    if last not in inner and is_option and not key.startswith("+"):
        group = above[0]
        raise ConfigError(
            f"{name} is not in the file of this {group}; if it is a valid option, set"
            f" +{name}={checked.show(value)}; {SEE}"
        )
    inner[last] = value


def check_key(key: str, text: str = "") -> None:
    """Raise ConfigError for an unknown key; `text` is the user's argument, for the message."""
    known = checked.find_key_types(BenchConfig)
    if key in known or key.startswith(OPTIONS):
        return
    if group := find_group_of_option(key):
        raise ConfigError(
            f"{key} is not in the configuration, but an option of a {group}; set"
            f" {group}.options.{key}{''.join(text.partition('=')[1:])}"
        )
    above = key.rpartition(".")[0]
    siblings = [name for name in known if name.rpartition(".")[0] == above]
    fault = (
        f"{key} is not in the configuration{suggest_name(key, known)}"
        if key
        else f"{text} has no key"
    )
    choices = ", ".join(siblings or [name for name in known if "." not in name])
    raise ConfigError(f"{fault}; choose one of: {choices}")


def resolve_spec(
    config: BenchConfig, conf_dir: Path = CONF_DIR, *, needs_labels: bool = True
) -> TrialSpec:
    """Resolve a configuration to its trial.

    `dynbatch.harness.planning.nodes.check_machine` checks that the machine can run it.

    Args:
        needs_labels: False if the labels of instances do not matter, as for counts of batches.

    Raises:
        ConfigError: if the model and the dataset do not fit together, or if the model, the loader
            or the policy refuses its settings.
    """
    system, model, dataset = config.system, config.model, config.dataset
    shared = {name: getattr(config, name) for name in checked.find_field_types(trial_spec.Settings)}
    spec = TrialSpec(
        **{
            **shared,
            "learning": _add_hash(config.learning),
            "data_root": str(expand_home("data_root", config.data_root)),
        },
        system=system.name,
        adapter=system.adapter,
        system_options=system.options,
        python=system.find_python(config.device),
        model=model.name,
        model_module=model.model,
        model_options=model.options,
        dataset=dataset.name,
        loader=dataset.loader,
        dataset_options=build_dataset_options(dataset, conf_dir),
        cache_dir=str(Path(config.results_dir) / ".reference"),
    )
    _check(spec, dataset, conf_dir, needs_labels)
    return choose_arity(spec)


def build_dataset_options(dataset: DatasetFile, conf_dir: Path = CONF_DIR) -> Options:
    """Return a loader's options, with the path and the checksum of the user's own file.

    Raises:
        ConfigError: for a file that is missing or cannot be read, and for a dataset that reads no
            such file.
    """
    if "path" in dataset.options:
        raise ConfigError("dataset.options.path is set by dataset.path; set that")
    if dataset.path is None:
        if dataset.first_line is not None:
            raise ConfigError(
                f"dataset={dataset.name} reads a file of your own; set dataset.path=FILE"
            )
        return dataset.options
    if dataset.first_line is None:
        raise ConfigError(
            f"dataset.path={dataset.path}, but dataset={dataset.name} has its own files; choose one"
            f" of: {', '.join(list_formats(conf_dir))}"
        )
    path = expand_home("dataset.path", dataset.path)
    digest = _hash_file("dataset.path", path, "a text file")
    return {**dataset.options, "path": str(path), "sha256": {OWN_SPLIT: digest}}


def _add_hash(settings: LearningSettings) -> LearningSettings:
    """Add the hash of a saved policy's file, which identifies the policy.

    Raises:
        ConfigError: if the file cannot be read, or the user sets its hash.
    """
    if settings.file_sha256 is not None:
        raise ConfigError(
            f"learning.file_sha256={settings.file_sha256} is computed from learning.file; remove it"
        )
    if settings.file is None:
        return settings
    digest = _hash_file("learning.file", Path(settings.file), "a saved policy")
    return replace(settings, file_sha256=digest)


def _hash_file(key: str, path: Path, wanted: str) -> str:
    try:
        return hashlib.sha256(read_regular(path)).hexdigest()
    except OSError as error:
        raise ConfigError(
            f"{key}={path} cannot be read: {error.strerror}; choose {wanted}"
        ) from error


def _check(spec: TrialSpec, dataset: DatasetFile, conf_dir: Path, needs_labels: bool) -> None:
    check_loader_options(spec.loader, spec.dataset_options)
    if spec.policy is not None:
        check_policy_name(spec.policy)
    if spec.policy is not None and "policy" not in spec.system_options:
        raise ConfigError(
            f"policy={spec.policy}, but system={spec.system} has no policy option;"
            " remove policy, or choose a system of the engine"
        )
    model = type(build_model(spec, data_sizes={}))
    fault = ""
    if model.instance_kind != dataset.instance_kind:
        fault = (
            f"expects {model.instance_kind} instances, but dataset={spec.dataset} has"
            f" {dataset.instance_kind}"
        )
    elif needs_labels and dataset.labels not in (model.labels, ANY):
        fault = (
            f"predicts {model.labels}, but the labels of dataset={spec.dataset} are"
            f" {dataset.labels}"
        )
    if fault:
        labels = dataset.labels if needs_labels else ANY
        models = find_models(dataset.instance_kind, labels, conf_dir)
        raise ConfigError(
            f"model={spec.model} {fault}; choose a model of: {', '.join(models) or 'none'}; or a"
            f" dataset of: {', '.join(find_datasets(model, conf_dir))}"
        )


def _collect_defaults(kind: type[Any]) -> dict[str, Any]:
    defaults = {}
    for item in fields(kind):
        if item.default is not MISSING:
            defaults[item.name] = item.default
        elif item.default_factory is not MISSING and not is_dataclass(item.default_factory):
            defaults[item.name] = item.default_factory()
    return defaults


def register_schema() -> None:
    """Register the defaults with Hydra; conf/bench.yaml names them first in its defaults list."""
    known = {group: _collect_defaults(kind) for group, kind in _FILES.items()}
    ConfigStore.instance().store(name="bench_schema", node=OmegaConf.create(known))


def compose_with_hydra(conf_dir: Path, overrides: list[str]) -> dict[str, Any]:
    """Compose a configuration with Hydra, and restore Hydra's global state afterwards."""
    register_schema()
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with convert_hydra_errors(), initialize_config_dir(str(conf_dir), version_base="1.3"):
            plain: Any = OmegaConf.to_container(compose(CONFIG_NAME, overrides=overrides))
    finally:
        GlobalHydra.instance().hydra = outer
    composed: dict[str, Any] = plain
    return composed
