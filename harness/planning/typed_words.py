"""What was typed as KEY=VALUE, checked against the types before anything is composed.

Hydra and OmegaConf convert what they can: a record would hold another value than was typed, or one
that was never meant (`force=2`, `batch_size='8'`). Here nothing is converted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from omegaconf import OmegaConf

from harness.errors import ConfigError, meant
from harness.planning.schema import BenchConfig
from harness.planning.sweep_sizes import check_n_trials, said_values
from harness.planning.yaml_files import GROUPS, NAMED, check_name, choices_of
from harness.values.checked import words_of
from harness.values.places import CONF_DIR

_LEFT_OPEN = "${"  # a reference to another value, which is checked once it is resolved
_PLAIN = (bool, int, float, str)


def check_typed(
    arguments: Sequence[str], conf_dir: Path = CONF_DIR, *, may_sweep: bool = True
) -> None:
    """Raise ConfigError for the first KEY=VALUE of a command line that is wrong.

    may_sweep: whether a key may have several values, as it may behind -m. What is no KEY=VALUE,
    flags among it, is Hydra's to tell. Raises Hydra's own error where one cannot be parsed.
    """
    texts = [one for one in arguments if not one.startswith("-") and ("=" in one or "~" in one[:1])]
    overrides = OverridesParser.create().parse_overrides(texts)
    for text, override in zip(texts, overrides, strict=True):
        key = _checked_key(text)
        if override.is_sweep_override() and not may_sweep:
            raise ConfigError(
                f"{text} has several values; write -m before all else to measure each"
            )
        for value in said_values(override):
            _check_value(key, value, text, conf_dir)
    check_n_trials(overrides, conf_dir)


def check_dotted(text: str, conf_dir: Path = CONF_DIR) -> None:
    """Raise ConfigError for an override as grids have it, its value in YAML, that is wrong."""
    key, value = _checked_key(text), text.partition("=")[2]
    if "=" in text and _LEFT_OPEN not in value:
        _check_value(key, _in_yaml(value), text, conf_dir)


def _in_yaml(value: str) -> Any:
    """A value as a grid's override has it; nothing stays a text, which YAML takes for null."""
    parsed: Any = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={value}"]))
    return parsed["value"] if value.strip() else ""


@cache
def types_of_keys() -> Mapping[str, Any]:
    """The type of every key of the configuration, with dots between levels."""
    return dict(_types_below(BenchConfig, ""))


def _types_below(kind: type[Any], above: str) -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(kind)
    for field in fields(kind):
        hint, key = hints[field.name], f"{above}{field.name}"
        yield key, hint
        if isinstance(hint, type) and is_dataclass(hint):
            yield from _types_below(hint, f"{key}.")


def _checked_key(text: str) -> str:
    """The key of an override; refuses one that no type has, and taking away what a trial needs."""
    key = text.partition("=")[0].lstrip("+~").strip()
    if key == "hydra.mode":  # Hydra would leave a sweep's settings in the folder where one works
        raise ConfigError(f"{text} is not for you to set; for a sweep write -m before all else")
    if key.startswith(("hydra.", "hydra/")):
        return key
    is_option = key.startswith(tuple(f"{group}.options." for group in NAMED))
    known = types_of_keys()
    if key not in known and not is_option:
        above = key.rpartition(".")[0]
        beside = [name for name in known if name.rpartition(".")[0] == above]
        found = (
            f"{key} is not in the configuration{meant(key, known)}" if key else f"{text} has no key"
        )
        choices = ", ".join(beside or [name for name in known if "." not in name])
        raise ConfigError(f"{found}; choose one of: {choices}")
    if text.startswith("~") and not is_option:
        raise ConfigError(f"{text}: every trial needs {key}; write {key}=VALUE, or leave it out")
    return key


def _check_value(key: str, said: Any, text: str, conf_dir: Path) -> None:
    """Refuse a value of another type than its key's, and another file's name."""
    value = said.text if isinstance(said, QuotedString) else said
    hint = types_of_keys().get(key)
    if isinstance(value, str) and _LEFT_OPEN in value:
        return
    if key in GROUPS:
        if not isinstance(value, str) or "/" in value:  # a name, not a path to a file
            known = ", ".join(choices_of(key, conf_dir))
            raise ConfigError(f"{text} names no {key}; choose one of: {known}, or leave {key} out")
        check_name(key, value, conf_dir)
    elif isinstance(value, dict) and is_dataclass(hint):
        for name, below in value.items():
            _check_value(_checked_key(f"{key}.{name}"), below, text, conf_dir)
    elif value == "" and key in types_of_keys():
        raise ConfigError(f"{key} is empty; give a value, or leave {key} out")
    elif not _fits(value, hint, text):
        raise ConfigError(f"{text} is not allowed; give {' or '.join(words_of(hint))}")
    group, _, name = key.partition(".")
    if group in NAMED and name == "name" and value in choices_of(group, conf_dir):
        raise ConfigError(f"{text} would give another {group} that name; write {group}={value}")


def _fits(value: Any, hint: Any, text: str) -> bool:
    """Whether a value is of a plain type; others, such as mappings, are not looked at.

    A number may stand for a text where it is written back as it was typed, as in results_dir=2026.
    """
    kinds = get_args(hint) or (hint,)
    if value is None and NoneType in kinds:
        return True
    (kind,) = (one for one in kinds if one is not NoneType) if len(kinds) < 3 else (None,)
    if kind not in _PLAIN:
        return True
    if kind is bool:
        return isinstance(value, bool) and text.strip().lower().endswith(("true", "false"))
    if kind is str and isinstance(value, bool | int | float):
        return str(value) in text
    return isinstance(value, (int, float) if kind is float else kind) and not isinstance(
        value, bool
    )
