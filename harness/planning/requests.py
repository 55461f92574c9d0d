"""Validation of the keys of `snakemake --config`, with one-line errors."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import yaml

from dynbatch.harness.errors import BenchError, ConfigError, suggest_name
from dynbatch.harness.planning.durations import parse_duration
from dynbatch.harness.planning.grid import CLAIMS, SCALES
from dynbatch.harness.planning.nodes import read_nodes
from dynbatch.harness.trials.spec import DEVICES
from dynbatch.harness.values.checked import (
    OneOf,
    check_count,
    check_known,
    check_path_text,
    check_value,
)
from dynbatch.harness.values.paths import SNAKEFILE, find_data_root, is_checkout

WORDS = {"scale": SCALES, "device": DEVICES}
FOLDERS = ("results_dir", "data_root", "conf_dir")
PLACES = (*FOLDERS, "records")
KEYS = (*WORDS, "threads", *PLACES, "budget", "nodes")
# Snakemake reads {x} as a wildcard and <x> as a variable in paths; control characters break lines.
_TAKEN = re.compile(r"[{}<>\x00-\x1f\x7f]")


def check_keys(config: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Check the keys and values of `--config`.

    Snakemake reads values as YAML: `results_dir=2026` is a number, and `scale=` is null.
    """
    check_known(config, KEYS, "--config ")
    for key, value in config.items():
        _check_value(key, value)
    if "data_root" not in config and environment.get("BENCH_DATA"):
        _check_path("data_root", str(find_data_root(environment)))
    read_nodes(config)
    if "records" in config and "budget" in config:
        raise ConfigError("--config records=... measures nothing; remove budget")


def _check_value(key: str, value: Any) -> None:
    if value is None or value == "":
        raise ConfigError(f"--config {key}= is empty; set a value, or remove {key}")
    if key == "threads":
        check_count("--config threads", value, 1)
    elif key == "budget":
        parse_duration(str(value))
    elif key in WORDS:
        check_value(f"--config {key}", value, Annotated[str, OneOf(WORDS[key])])
    elif key in PLACES:
        _check_path(key, value)


def _check_path(key: str, value: Any) -> None:
    """Check the path that a key gives.

    Spaces, quotes and other characters that are special to a shell are allowed.
    """
    if not isinstance(value, str):
        raise ConfigError(f"--config {key}={value} is not read as text; set {key}=./NAME")
    taken = _TAKEN.search(value)
    if taken is not None:
        raise ConfigError(
            f"--config {key}={value!r} has {taken[0]!r}, which Snakemake does not allow in paths;"
            " choose another path"
        )
    check_path_text(f"--config {key}", value)
    if key in FOLDERS and os.path.lexists(value) and not Path(value).is_dir():
        raise ConfigError(f"--config {key}={value} is not a directory; choose another path")
    if key == "conf_dir" and not Path(value, "bench.yaml").is_file():
        raise ConfigError(f"--config conf_dir={value} has no bench.yaml; choose a copy of conf/")


def _quote_path(text: str) -> str:
    """Return a value of `--config` that Snakemake reads as this path."""
    if not Path(text).is_absolute() and _read_value(text) != text:
        text = f"./{text}"
    if _read_value(text) == text:
        return text
    return f" {json.dumps(text, ensure_ascii=False)} "  # without spaces, Snakemake drops the quotes


def _read_value(text: str) -> object:
    """Return what Snakemake reads in a value of `--config`: a number, or YAML if it is valid."""
    text = text.strip("'\"")
    with suppress(ValueError):
        return float(text)
    if text in ("True", "False"):
        return text == "True"
    with suppress(yaml.YAMLError):
        return yaml.load(text, Loader=yaml.BaseLoader)
    return text


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Exit with the message of a BenchError, in place of the traceback that Snakemake prints."""
    try:
        yield
    except BenchError as error:
        raise SystemExit(f"snakemake: {' '.join(str(error).split())}") from None


def is_only_claims(targets: Collection[str]) -> bool:
    """Return whether the target of a run is `claims`.

    Raises:
        ConfigError: if there are others, because a run plans either all trials or those of claims.
    """
    if CLAIMS in targets and len(targets) > 1:
        others = ", ".join(sorted({*targets} - {CLAIMS}))
        raise ConfigError(
            f"target {CLAIMS} plans only trials of claims: expected no other target, got {others};"
            " run them one after the other"
        )
    return CLAIMS in targets


def format_pipeline_command(target: str, config: Mapping[str, object] | None = None) -> str:
    """Return the command that builds a target of the pipeline.

    Snakemake looks for a Snakefile in the working directory; an installed package has its own.
    """
    words = ["snakemake", target]
    if not is_checkout():
        words += ["--snakefile", str(SNAKEFILE)]
    if config:
        texts = {
            key: _quote_path(str(config[key])) if key in PLACES else config[key] for key in config
        }
        words += ["--config", *(f"{key}={text}" for key, text in texts.items())]
    return shlex.join(words)


DRAW = "draw_"
TABLES = ("epoch_times", "graph_construction", "ablation")  # experiments of the target `tables`


def select_drawn(targets: Collection[str], experiments: Collection[str]) -> list[str]:
    """Return the experiments that a run draws: those that all its targets name, or else all."""
    named: set[str] = set()
    for target in targets:
        named |= {*TABLES} if target == "tables" else {target.removeprefix(DRAW)}
    is_all = not named or not named <= {*experiments, *TABLES}
    return [name for name in experiments if is_all or name in named]


def make_target_error(target: str, artifacts: Collection[str]) -> ConfigError:
    """Return the error for an unknown target: neither a rule nor draw_NAME of an experiment."""
    known = ["all", "tables", "claims", *(f"{DRAW}{name}" for name in ("all", *sorted(artifacts)))]
    close = suggest_name(target, known)
    if f"{DRAW}{target}" in known:
        close = f", did you mean {DRAW}{target}?"
    return ConfigError(f"{target} is unknown{close}; choose one of: {', '.join(known)}")
