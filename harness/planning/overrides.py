"""Parsing and formatting of KEY=VALUE arguments with Hydra's grammar."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice, product
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override, QuotedString, RangeSweep
from hydra.errors import HydraException, OverrideParseException

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.config import OPTIONS, BenchConfig, check_key
from dynbatch.harness.planning.yaml_files import GROUPS, list_choices
from dynbatch.harness.values.checked import describe_values, find_key_types
from dynbatch.harness.values.paths import CONF_DIR

Settings = Mapping[str, Any]  # values by key, with dots between levels
MAX_TRIALS = 10_000  # of one sweep; all experiments together have 5,700 at the papers' sizes
_PLAIN_TEXT = re.compile(r"[A-Za-z_][\w./:+%-]*", re.ASCII)  # needs no quotes on a command line
_ADVICE = (
    "quote a value that has characters other than ASCII letters, digits, spaces and - _ . / : + %,"
    " as in KEY='\"a, b\"'"  # as typed in a shell
)
_VALUES = frozenset({"null", "true", "false", "nan", "inf"})  # need quotes to be text


def read_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Parse KEY=VALUE arguments; raise ConfigError for the first invalid one."""
    (point,) = read_points(list(texts), may_sweep=False)
    return point


def read_points(
    texts: Sequence[str], conf_dir: Path = CONF_DIR, *, may_sweep: bool
) -> list[dict[str, Any]]:
    """Parse KEY=VALUE arguments to the points of a sweep; single values give one point.

    Keys of options have the prefix `+` in the result if the argument has it.

    Args:
        may_sweep: whether a key may have several values, as after `-m`.
    """
    overrides = [_parse(text) for text in texts]
    for text, override in zip(texts, overrides, strict=True):
        _check_kind(text, override, may_sweep)
    axes = [_list_values(override, conf_dir) for override in overrides]
    if (n_trials := math.prod(map(len, axes))) > MAX_TRIALS:
        is_cut = max(map(len, axes)) > MAX_TRIALS
        many = f"more than {MAX_TRIALS}" if is_cut else str(n_trials)
        raise ConfigError(f"the sweep has {many} trials: expected at most {MAX_TRIALS}")
    keys = [_parse_key(text) for text in texts]
    return [dict(zip(keys, values, strict=True)) for values in product(*axes)]


def format_override(key: str, value: Any) -> str:
    """Format one override so that `bench` parses it to the same value."""
    if value is None or isinstance(value, bool):
        return f"{key}={'null' if value is None else str(value).lower()}"
    text = str(value)
    is_plain = not isinstance(value, str | Path) or _PLAIN_TEXT.fullmatch(text) is not None
    if is_plain and (text.lower() not in _VALUES or not isinstance(value, str) or key == "system"):
        return f"{key}={text}"
    # The grammar reads a backslash before a quote, and at the end, as an escape character.
    quoted = re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), text)
    return f"{key}='{quoted}'"


@cache
def _parse(text: str) -> Override:
    """Parse an argument; cached, because sweeps repeat arguments and Hydra takes a millisecond."""
    if "=" not in text and not text.startswith("~"):
        raise ConfigError(f"invalid argument {text!r}: expected KEY=VALUE, such as batch_size=8")
    if text.endswith(","):
        raise ConfigError(
            f"invalid argument {text!r}: expected a value after the comma; remove the comma, or the"
            " space after it"
        )
    try:
        return OverridesParser.create().parse_override(text)
    except OverrideParseException as error:
        raise ConfigError(
            f"invalid argument: expected KEY=VALUE, got {error.override!r}; {_ADVICE}"
        ) from error
    except (HydraException, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()).partition(" expecting {")[0]
        raise ConfigError(f"invalid argument {text!r}: {reason}; {_ADVICE}") from error


def _parse_key(text: str) -> str:
    """Return the key of an override: `+` and `++` become `+`, which only an option needs."""
    key = text.partition("=")[0].strip()
    name = key.lstrip("+")
    return f"+{name}" if key.startswith("+") and f"{name}.".startswith(OPTIONS) else name


def _check_kind(text: str, override: Override, may_sweep: bool) -> None:
    key = _parse_key(text).lstrip("+")
    if key.startswith(("hydra.", "hydra/", "~hydra")):
        raise ConfigError(
            f"{text} sets how Hydra runs trials, but bench runs them itself; remove it"
        )
    if text.startswith("~"):
        raise ConfigError(f"{text} removes a key that every trial needs; set another value")
    check_key(key, text)
    if override.is_sweep_override() and not may_sweep:
        raise ConfigError(f"{text} has several values; set -m first to measure each")


def _list_values(override: Override, conf_dir: Path) -> list[Any]:
    """Return the values of a key; of more than MAX_TRIALS only one more."""
    key, text = override.key_or_group, override.input_line or ""
    if not override.is_sweep_override():
        return [_to_plain(key, override.value(), text)]
    if not override.is_discrete_sweep():
        raise ConfigError(f"{text} is not a list of values; set KEY=A,B or range(A,B)")
    values = list(islice(_iterate_sweep(override, conf_dir), MAX_TRIALS + 1))
    if not values:
        raise ConfigError(f"{text} has no value; set at least one")
    return [_to_plain(key, value, str(value)) for value in values]


def _iterate_sweep(override: Override, conf_dir: Path) -> Iterator[object]:
    """Yield the values of a key, which may be infinitely many; measuring has its own order."""
    value = override._value
    if isinstance(value, Glob):
        known = list_choices(override.key_or_group, conf_dir)
        return iter(value.filter(list(known)) if override.key_or_group in GROUPS else ())
    if not isinstance(value, RangeSweep):
        return override.sweep_iterator()
    if value.start is None or value.stop is None or not value.step:
        raise ConfigError(f"{override.input_line} has no end; set start, stop and step")
    return iter(value.range())


def _to_plain(key: str, value: Any, text: str) -> Any:
    """Convert a parsed value to Python's types.

    A number is converted to text if the key takes text and the conversion gives what the user
    typed, as in results_dir=2026.
    """
    value = value.text if isinstance(value, QuotedString) else value
    if isinstance(value, list):
        return [_to_plain("", item, text) for item in value]
    if isinstance(value, dict):
        return {str(name): _to_plain("", item, text) for name, item in value.items()}
    if value is None and key == "system":
        return "null"  # here the name of a system
    hint = find_key_types(BenchConfig).get(key)
    if value == "" and hint is not None:
        raise ConfigError(f"{key} is empty; set a value, or remove {key}")
    takes_text = hint is not None and "a string" in describe_values(hint)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if takes_text and is_number and str(value) in text else value
