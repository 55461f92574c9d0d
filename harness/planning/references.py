"""References in a configuration, resolved by OmegaConf, and errors of Hydra in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.yaml_files import format_yaml_error
from dynbatch.harness.values.nested import find_texts

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
