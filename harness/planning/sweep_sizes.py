"""How many trials a sweep of `bench -m` has; one that would not end is told before it begins."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, RangeSweep

from harness.errors import ConfigError
from harness.planning.yaml_files import choices_of

MOST_TRIALS = 10_000  # of one sweep; the papers' artefacts have 5 700 together


def said_values(override: Override) -> list[Any]:
    """The values that an override says one by one; none where it has a rule for them."""
    value = override._value
    if isinstance(value, ChoiceSweep):
        return list(value.list)
    return [] if override.is_sweep_override() else [value]


def check_n_trials(overrides: Iterable[Override], conf_dir: Path) -> None:
    """Raise ConfigError for a sweep over no value, or of more than MOST_TRIALS trials."""
    n_trials = 1.0
    for override in overrides:
        n_values = _n_values(override, conf_dir)
        if not n_values >= 1:
            raise ConfigError(f"{override.input_line} names no value; give at least one")
        n_trials *= n_values
    if n_trials > MOST_TRIALS:
        raise ConfigError(f"the sweep has {n_trials:.6g} trials; give one of at most {MOST_TRIALS}")


def _n_values(override: Override, conf_dir: Path) -> float:
    value = override._value
    if isinstance(value, ChoiceSweep):
        return len(value.list)
    if isinstance(value, Glob):
        return len(value.filter(list(choices_of(override.key_or_group, conf_dir))))
    if isinstance(value, RangeSweep):
        return _n_in_range(value)
    return 1


def _n_in_range(swept: RangeSweep) -> float:
    """So many numbers from start to stop; infinitely many without a step."""
    start, stop, step = swept.start, swept.stop, swept.step
    if start is None or stop is None or not step:
        return math.inf
    n_values = (stop - start) / step
    return math.ceil(n_values) if math.isfinite(n_values) else n_values
