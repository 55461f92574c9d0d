"""Sweep of batch counts: one call of `bench-schedule` on several mini-batches.

Its keys are those of `bench-schedule`. The values of model, dataset, split, batch_size, policy,
granularity and learning.seed may be lists; each model is combined with the datasets of its kind of
instances. In a list of policies, `all` adds every policy, and `not:NAME` removes one. New policies
are therefore counted without being named.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynbatch.harness.contracts.policy import check_policy_name, list_policy_names
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.trials.sources import SourceHashes

REQUIRED = ("model", "dataset", "batch_size", "policy")
LISTED = (*REQUIRED, "split", "granularity", "learning.seed")
# Keys that the pipeline sets itself.
NOT_ALLOWED = ("out", "records", "force", "on_invalid_data", "save_policy", "data_root")

LEFT_OUT = "not:"
COUNTER = "dynbatch.harness.counts.worker"
SECONDS = "timing.min_seconds"  # 0: a few calls, whose seconds are not shown
Values = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Values of every key, in the order of the file."""

    settings: Mapping[str, Values]

    def __post_init__(self) -> None:
        for key in REQUIRED:
            if not self.settings.get(key):
                raise ConfigError(f"counts have no {key}; set {', '.join(REQUIRED)}")
        for key, values in self.settings.items():
            if key in NOT_ALLOWED:
                raise ConfigError(f"counts have {key}, which the pipeline sets; remove it")
            if len(values) != 1 and key not in LISTED:
                raise ConfigError(
                    f"counts have {len(values)} values of {key}; only {', '.join(LISTED)} may be"
                    " lists"
                )
        for policy in self.settings["policy"]:
            check_policy_name(policy)

    def get_values(self, key: str, default: str = "") -> Values:
        return self.settings.get(key, (default,))

    @property
    def overrides(self) -> tuple[str, ...]:
        return tuple(f"{key}={','.join(values)}" for key, values in self.settings.items())

    @property
    def is_timed(self) -> bool:
        """True if scheduling and learning are timed, so that their seconds are shown."""
        return self.get_values(SECONDS)[0] not in ("0", "0.0")

    @property
    def sweep_id(self) -> str:
        """Path-safe name of the sweep, which ends with a hash of its settings."""
        digest = hashlib.sha256(json.dumps(sorted(self.settings.items())).encode()).hexdigest()[:8]
        first, *others = self.settings["model"]
        more = f"_and_{len(others)}_more" if others else ""
        return f"sweep-{first}{more}-{digest}"

    def build_path(self, results_dir: Path) -> Path:
        return results_dir / "counts" / f"{self.sweep_id}.json"


def parse_sweep(location: str, content: Any) -> Sweep:
    """Read an entry of `counts`; the message of its ConfigError starts with `location`."""
    if not isinstance(content, dict):
        raise ConfigError(
            f"{location}: invalid counts: expected a mapping, got {content!r}; fix it"
        )
    try:
        settings = {str(key): _to_texts(key, value) for key, value in content.items()}
        if "policy" in settings:
            settings["policy"] = _select_policies(settings["policy"])
        return Sweep(settings)
    except ConfigError as error:
        raise ConfigError(f"{location}: {error}") from error


def _to_texts(key: str, value: Any) -> Values:
    values = value if isinstance(value, list) else [value]
    for item in values:
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            raise ConfigError(
                f"invalid {key} of counts: expected text or a number, got {item!r}; fix it"
            )
    return tuple(dict.fromkeys(str(item) for item in values))


def _select_policies(values: Values) -> Values:
    """Return the names of policies; `all` adds every policy and `not:NAME` removes one."""
    chosen: list[str] = []
    for value in values:
        if value == "all":
            chosen += list_policy_names()
        elif not value.startswith(LEFT_OUT):
            chosen.append(value)
    left_out = [value.removeprefix(LEFT_OUT) for value in values if value.startswith(LEFT_OUT)]
    for name in left_out:
        check_policy_name(name)
    return tuple(name for name in dict.fromkeys(chosen) if name not in left_out)


def hash_counting_code(
    modules: Iterable[str], names: Collection[str], hashes: SourceHashes | None = None
) -> str:
    """Hash the code that counts.

    Args:
        modules: models and loaders.
        names: names of modules, such as policies, that count as imported; see find_imported_files.
    """
    return (hashes or SourceHashes()).hash_modules(sorted({COUNTER, *modules}), names)
