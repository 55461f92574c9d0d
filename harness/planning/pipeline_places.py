"""Places that a run of the pipeline is told: which names Snakemake can work with, and as words."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from harness.errors import ConfigError

FOLDERS = ("results_dir", "data_root", "conf_dir")
PLACES = (*FOLDERS, "records")
# {x} is a wildcard of Snakemake's, <x> a variable of its paths; what cannot be seen breaks lines.
_TAKEN = re.compile(r"[{}<>\x00-\x1f\x7f]")


def check_places(config: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Raise ConfigError for a place whose name Snakemake would misread, or that is no folder.

    A blank, a quote or whatever else a shell would act on is as good as any other character.
    """
    said = {key: config[key] for key in PLACES if config.get(key) is not None}
    if "data_root" not in said and environment.get("BENCH_DATA"):
        said["data_root"] = environment["BENCH_DATA"]
    for key, value in said.items():
        if isinstance(value, list | dict):
            raise ConfigError(
                f"{key}={value!r} is read as YAML, and is no text; quote it: {key}='\"...\"'"
            )
        text = str(value)
        taken = _TAKEN.search(text)
        if taken is not None:
            raise ConfigError(
                f"{key}={text!r} has {taken[0]!r}, which Snakemake does not take in the name of a"
                " file; choose another place"
            )
        if key in FOLDERS and os.path.lexists(text) and not Path(text).is_dir():
            raise ConfigError(f"{key}={text} is there and is no folder; choose another place")


def word(path: str | os.PathLike[str]) -> str:
    """A path as an argument that no command takes for an option."""
    text = os.fspath(path)
    return f"./{text}" if text.startswith("-") else text


def setting(key: str, path: str | os.PathLike[str]) -> str:
    """A path as `key=path` for what reads values as YAML, as bench-schedule does.

    Quoted where YAML would read something else: ` #` begins a comment, `: ` makes a mapping.
    """
    text = os.fspath(path)
    if re.fullmatch(r"[A-Za-z0-9_./-]+", text) and isinstance(yaml.safe_load(text), str):
        return f"{key}={text}"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'{key}="{escaped}"'
