"""Reads a YAML file of the configuration; whatever is wrong with it is told in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from harness.errors import ConfigError
from harness.values.regular_files import check_regular

_QUICK = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_mapping(path: Path, *keys: str) -> dict[str, Any]:
    """Read a file that maps keys to values, among them `keys`; raises ConfigError else."""
    try:
        content = _load(path)
    except yaml.YAMLError as error:
        raise ConfigError(yaml_fault(error)) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; give a file") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; correct the file") from error
    if not isinstance(content, dict):
        found = "is empty" if content is None else f"holds a {type(content).__name__}"
        raise ConfigError(f"{path} {found}; it maps keys to values")
    for key in keys:
        if key not in content:
            raise ConfigError(f"{path} has no {key}; add it")
    return content


def _load(path: Path) -> Any:
    """Read by libyaml where PyYAML has it, 8 times faster; what is wrong PyYAML itself tells."""
    check_regular(path)
    try:
        with path.open(encoding="utf-8") as file:
            return yaml.load(file, Loader=_QUICK)
    except yaml.YAMLError:
        with path.open(encoding="utf-8") as file:
            return yaml.safe_load(file)


def yaml_fault(error: yaml.YAMLError) -> str:
    """Return what is wrong with a YAML text as one line: file, line, problem."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    if mark is None or problem is None:
        return f"{' '.join(str(error).split())}; correct the file"
    return f"{mark.name}, line {mark.line + 1} is not YAML: {problem}; correct the file"
