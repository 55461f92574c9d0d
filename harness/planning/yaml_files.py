"""Reads a YAML file of the configuration; whatever is wrong with it is told in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from harness.errors import ConfigError
from harness.machine.regular_files import check_regular


class _Unique:
    """Refuses a key that is there twice, of which YAML's own loaders keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping; raises ConstructorError, as OmegaConf does."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    "while constructing a mapping",
                    node.start_mark,
                    f"found duplicate key {key.value}",
                    key.start_mark,
                )
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        built: dict[Any, Any] = super().construct_mapping(node, deep)  # type: ignore[misc]
        return built


class _Slow(_Unique, yaml.SafeLoader):
    """PyYAML's own, which tells best what is wrong."""


class _Quick(_Unique, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """By libyaml where PyYAML has it: 8 times faster."""


def read_mapping(path: Path, *keys: str) -> dict[str, Any]:
    """Read a file that maps keys to values, among them `keys`; raises ConfigError else."""
    try:
        content = _load(path)
        loop = _loop_in(content)
    except yaml.YAMLError as error:
        raise ConfigError(yaml_fault(error)) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; give a file") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; correct the file") from error
    if not isinstance(content, dict):
        found = "is empty" if content is None else f"holds a {type(content).__name__}"
        raise ConfigError(f"{path} {found}; it maps keys to values")
    if loop is not None:
        raise ConfigError(f"{path} has a value that holds itself, at {loop}; correct the file")
    for key in keys:
        if key not in content:
            raise ConfigError(f"{path} has no {key}; add it")
    return content


def _loop_in(content: Any) -> str | None:
    """The keys, with dots between, of a value that an alias puts into itself; None: there is none.

    Looks at each value once, however many aliases it has.
    """
    seen: set[int] = set()

    def look(value: Any, above: tuple[int, ...], place: str) -> str | None:
        if not isinstance(value, dict | list) or (id(value) in seen and id(value) not in above):
            return None
        if id(value) in above:
            return place
        seen.add(id(value))
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        below = (look(one, (*above, id(value)), f"{place}.{key}") for key, one in pairs)
        return next((loop for loop in below if loop is not None), None)

    found = look(content, (), "")
    return found and found.removeprefix(".")


def _load(path: Path) -> Any:
    """Read quickly; what is wrong the slow loader tells."""
    check_regular(path)
    try:
        with path.open(encoding="utf-8") as file:
            return yaml.load(file, Loader=_Quick)
    except yaml.YAMLError:
        with path.open(encoding="utf-8") as file:
            return yaml.load(file, Loader=_Slow)


def yaml_fault(error: yaml.YAMLError) -> str:
    """Return what is wrong with a YAML text as one line: file, line, problem."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    if mark is None or problem is None:
        return f"{' '.join(str(error).split())}; correct the file"
    return f"{mark.name}, line {mark.line + 1} is not YAML: {problem}; correct the file"
