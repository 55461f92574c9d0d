"""Typed configuration: Hydra's YAML files checked against dataclasses, then resolved to trials."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from harness.contracts.corpus import check_loader_options
from harness.contracts.policy import LearningSettings, check_policy_name
from harness.errors import ConfigError
from harness.machine.files import read_regular
from harness.planning.compose import Composer, plain_of
from harness.planning.grid import SCALES
from harness.planning.kinds import known_system
from harness.planning.schema import BenchConfig
from harness.planning.yaml_files import choices_of, read_mapping
from harness.trials.spec import BAD_DATA, Limits, Timing, TrialSpec
from harness.trials.workload import build_model
from harness.values.checked import check_count, check_path_text
from harness.values.places import CONF_DIR

MOST_ROUNDS = 1000


def spec_of(config: DictConfig, command: str = "") -> TrialSpec:
    """Resolve a configuration to its trial.

    Raises ConfigError for an unknown name, a value out of range, or a model and a data set that do
    not fit together. Whether this machine can run it is another question: harness.planning.nodes.
    """
    return spec_from(plain_of(config), command)


def spec_from(plain: Mapping[str, Any], command: str = "") -> TrialSpec:
    """Resolve a configuration's plain values; raises ConfigError as spec_of does."""
    _refuse_unknown_keys(plain, BenchConfig())
    for name in ("results_dir", "data_root", "out", "trace"):
        if plain[name] is not None:
            check_path_text(name, plain[name])
    if plain["rounds"] is not None:
        check_count("rounds", plain["rounds"], 1, MOST_ROUNDS)
    if plain["scale"] is not None and plain["scale"] not in SCALES:
        raise ConfigError(
            f"scale={plain['scale']} is not allowed; choose one of {', '.join(SCALES)}"
        )
    if plain["bad_data"] not in BAD_DATA:
        raise ConfigError(
            f"bad_data={plain['bad_data']} is not allowed; choose one of {', '.join(BAD_DATA)}"
        )
    known_system(f"system/{plain['system']['name']}.yaml", plain["system"])
    shared = ("batch_size", "hidden_size", "embedding_size", "mode", "device", "threads", "seed")
    more = ("round", "split", "order", "learning_rate", "policy", "data_root")
    spec = TrialSpec(
        system=plain["system"]["name"],
        adapter=plain["system"]["adapter"],
        system_options=plain["system"]["options"],
        python=plain["system"]["python"],
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
    settings = LearningSettings(**plain)
    if settings.file_sha256 is not None:
        raise ConfigError(
            f"learning.file_sha256={settings.file_sha256} cannot be chosen: it is that of"
            " learning.file; leave it out"
        )
    if settings.file is None:
        return settings
    check_path_text("learning.file", settings.file)
    try:
        digest = hashlib.sha256(read_regular(Path(settings.file))).hexdigest()
    except OSError as error:
        raise ConfigError(
            f"learning.file={settings.file} cannot be read: {error.strerror}; name a saved policy"
        ) from error
    return replace(settings, file_sha256=digest)


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
    check_loader_options(spec.loader, spec.dataset_options)
    if spec.policy is not None:
        check_policy_name(spec.policy, may_choose=True)
    if spec.policy is not None and "policy" not in spec.system_options:
        raise ConfigError(
            f"policy={spec.policy}, but system={spec.system} batches in its own way; leave policy"
            " out, or choose a system of the shared core"
        )
    wanted = build_model(spec, data_sizes={}).instance_kind
    if wanted != instance_kind:
        fitting = datasets_of(wanted)
        raise ConfigError(
            f"model={spec.model} takes instances of kind {wanted}, but dataset={spec.dataset} has"
            f" {instance_kind}; choose a data set of its kind: {', '.join(fitting)}"
        )


def datasets_of(instance_kind: str) -> list[str]:
    """Names of the data sets that have instances of a kind."""
    return [
        name
        for name in choices_of("dataset")
        if read_mapping(CONF_DIR / "dataset" / f"{name}.yaml").get("instance_kind") == instance_kind
    ]


def specs_of(
    override_lists: Iterable[Sequence[str]], extra: Sequence[str] = (), conf_dir: Path = CONF_DIR
) -> dict[str, TrialSpec]:
    """Resolve a grid's override lists, each with `extra` behind it, to trials by trial_id.

    Points that come out equal, within an experiment or across several, are one trial.
    """
    composer = Composer(conf_dir)
    specs = (spec_from(composer.plain([*one, *extra])) for one in override_lists)
    return {spec.trial_id: spec for spec in specs}
