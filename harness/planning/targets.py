"""What Snakemake was asked to make, checked before anything is: its own words name no choices."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from harness.errors import ConfigError
from harness.values.meant import meant


def check_targets(targets: Iterable[str], rules: Collection[str]) -> None:
    """Raise ConfigError for a target that is neither a rule nor looks like a file."""
    for target in sorted(targets):
        if target not in rules and not set("/.") & set(target):
            close, known = meant(target, rules), ", ".join(sorted(rules))
            raise ConfigError(
                f"{target} is neither a rule nor a file{close}; choose one of: {known}"
            )
