"""YAML files of conf/: names by group, content, and references, all with one-line errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dynbatch.harness.contracts.corpus import ANY, CLASSES
from dynbatch.harness.contracts.model import Model, find_model_class
from dynbatch.harness.errors import BenchError, ConfigError, suggest_name
from dynbatch.harness.machine.files import check_regular
from dynbatch.harness.values.nested import find_texts
from dynbatch.harness.values.paths import CONF_DIR

SEE = "`bench --cfg job` prints every key and its value"


def resolve_references(values: dict[str, Any], *, only_environment: bool = False) -> dict[str, Any]:
    """Replace references to other values, or only those to environment variables."""
    marks = ("${oc.env:", "${bench.") if only_environment else ("${",)
    if not any(mark in text for text in find_texts(values) for mark in marks):
        return values
    with convert_hydra_errors():
        if only_environment:
            return {
                key: OmegaConf.create({"_": value})["_"]
                if isinstance(value, str) and value.startswith(marks)
                else value
                for key, value in values.items()
            }
        plain: Any = OmegaConf.to_container(OmegaConf.create(values), resolve=True)
        resolved: dict[str, Any] = plain
        return resolved


@contextmanager
def convert_hydra_errors() -> Iterator[None]:
    """Convert errors of Hydra and of its YAML files to ConfigError with a one-line message."""
    try:
        yield
    except yaml.YAMLError as error:
        raise ConfigError(format_yaml_error(error)) from error
    except UnicodeDecodeError as error:  # the error does not name the file
        raise ConfigError(f"a file of conf/ is not UTF-8: {error}; fix the file") from error
    except (HydraException, OmegaConfBaseException, ValueError, RecursionError) as error:
        lines = [line.strip() for line in str(error).splitlines()]
        raise ConfigError(f"{' '.join(filter(None, lines))}; {SEE}") from error
    except OSError as error:
        if error.filename is None:
            raise
        raise ConfigError(
            f"{error.filename} cannot be read: {error.strerror}; fix its path or permissions"
        ) from error


class _Unique:
    """Mixin that rejects duplicate keys, of which PyYAML's loaders use the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping; raise ConstructorError for a duplicate key, as OmegaConf does."""
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
    """Pure Python loader of PyYAML, which has the most precise error messages."""


class _Quick(_Unique, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Loader of libyaml, if PyYAML has it: 8 times faster."""


for _loader in (_Slow, _Quick):  # YAML 1.1 reads 1e-3 as text, a command line as a number
    _loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


def read_mapping(path: Path, *keys: str) -> dict[str, Any]:
    """Read a file that maps keys to values."""
    try:
        content = _load(path)
    except yaml.YAMLError as error:
        raise ConfigError(format_yaml_error(error)) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}; choose a readable file"
        ) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; fix the file") from error
    if not isinstance(content, dict):
        got = "nothing" if content is None else f"a {type(content).__name__}"
        raise ConfigError(f"{path}: expected keys and values, got {got}; fix the file")
    for key in keys:
        if key not in content:
            raise ConfigError(f"{path} has no {key}; add it")
    return content


def _load(path: Path) -> Any:
    """Read with the fast loader; on an error read again with the slow one, for its message."""
    check_regular(path)
    try:
        return deepcopy(_parse(path.read_text(encoding="utf-8")))
    except yaml.YAMLError:
        with path.open(encoding="utf-8") as file:
            return yaml.load(file, Loader=_Slow)


@lru_cache(maxsize=1024)
def _parse(text: str) -> Any:
    """Parse once: a plan reads the same files thousands of times. Callers copy the result."""
    return yaml.load(text, Loader=_Quick)


def format_yaml_error(error: yaml.YAMLError) -> str:
    """Return a YAML error as one line: file, line, problem."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    if mark is None or problem is None:
        return f"{' '.join(str(error).split())}; fix the file"
    return f"{mark.name}:{mark.line + 1}: invalid YAML: {problem}; fix the file"


NAMED = ("system", "model", "dataset")  # groups whose files contain their own name
GROUPS = (*NAMED, "experiment")


def list_choices(group: str, conf_dir: Path = CONF_DIR) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (conf_dir / group).glob("*.yaml")))


def find_choice(group: str, name: str, conf_dir: Path) -> Path:
    """Return the file of a group by name; raise ConfigError for an unknown name."""
    known = list_choices(group, conf_dir)
    if name not in known:
        close = _suggest_labeled(group, name, conf_dir) or suggest_name(name, known)
        raise ConfigError(
            f"{group}={name} is unknown{close}; choose one of: {', '.join(known) or 'none'}"
        )
    return conf_dir / group / f"{name}.yaml"


def _suggest_labeled(group: str, name: str, conf_dir: Path) -> str:
    """Return a question with the choices whose labels begin with a name, as in "PyTorch, eager"."""
    labels: dict[str, str] = {}
    for key in list_choices(group, conf_dir):
        with suppress(BenchError):  # of another file
            labels[key] = str(read_mapping(conf_dir / group / f"{key}.yaml").get("label"))
    alike = [key for key, label in labels.items() if label.lower().startswith(name.lower())]
    return f", did you mean {' or '.join(alike)}?" if name and alike else ""


def read_choices(group: str, conf_dir: Path = CONF_DIR, *keys: str) -> dict[str, dict[str, Any]]:
    """Read all files of a group, by name; each must have the keys."""
    folder = conf_dir / group
    return {n: read_mapping(folder / f"{n}.yaml", *keys) for n in list_choices(group, conf_dir)}


def list_formats(conf_dir: Path = CONF_DIR) -> dict[str, str]:
    """Return the datasets that read a file of the user's own, each with its `first_line`."""
    contents = read_choices("dataset", conf_dir)
    first_lines = {name: content.get("first_line") for name, content in contents.items()}
    return {name: str(line) for name, line in first_lines.items() if line}


def find_datasets(model: type[Model], conf_dir: Path = CONF_DIR) -> list[str]:
    return [
        name
        for name, content in read_choices("dataset", conf_dir).items()
        if content.get("instance_kind") == model.instance_kind
        and content.get("labels", CLASSES) in (model.labels, ANY)
    ]


def find_models(instance_kind: str, labels: str, conf_dir: Path = CONF_DIR) -> list[str]:
    """Return the names of the models for instances of a kind; ANY labels fit every model."""
    names = []
    for name in list_choices("model", conf_dir):
        with suppress(BenchError):  # of another model's file
            kind = find_model_class(read_mapping(conf_dir / "model" / f"{name}.yaml")["model"])
            if kind.instance_kind == instance_kind and labels in (kind.labels, ANY):
                names.append(name)
    return names


def find_group_of_option(key: str) -> str | None:
    """Return "system", "model" or "dataset" if one of its files has an option of this name."""
    for group in NAMED:
        paths = (CONF_DIR / group / f"{name}.yaml" for name in list_choices(group))
        if any(key in (read_mapping(path).get("options") or {}) for path in paths):
            return group
    return None
