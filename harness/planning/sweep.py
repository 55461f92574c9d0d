"""A sweep: one call of `bench-schedule`, which counts batches of several mini-batches.

Its keys are those of `bench-schedule`: model, dataset, split, batch_size, policy, granularity and
learning.seed may be lists (of models and data sets, those meet that are of one kind); all others
are single values. Of policies `all` names every one there is, behind those named before it, and
`not:NAME` leaves one out again: so a policy that is added is counted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.contracts.policy import policy_names
from harness.errors import ConfigError
from harness.trials.sources import SourceHashes

REQUIRED = ("model", "dataset", "batch_size", "policy")
LISTED = (*REQUIRED, "split", "granularity", "learning.seed")
# The pipeline's to say.
NOT_ALLOWED = ("out", "records", "force", "bad_data", "save_policy", "data_root")

LEFT_OUT = "not:"
COUNTER = "harness.counts.worker"  # which does not import this: its hash is that of what counts
SECONDS = "timing.min_seconds"  # 0: a few calls, whose seconds nobody looks at
Values = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Values of every key, in the order of the file; raises ConfigError for what cannot be one."""

    settings: Mapping[str, Values]

    def __post_init__(self) -> None:
        for key in REQUIRED:
            if not self.settings.get(key):
                raise ConfigError(f"counts have no {key}; give {', '.join(REQUIRED)}")
        for key, values in self.settings.items():
            if key in NOT_ALLOWED:
                raise ConfigError(f"counts have {key}, which the pipeline gives; leave it out")
            if len(values) != 1 and key not in LISTED:
                raise ConfigError(
                    f"counts have {len(values)} values of {key}; only {', '.join(LISTED)} may be"
                    " lists"
                )
        for policy in self.settings["policy"]:
            if policy not in policy_names():
                known = ", ".join(policy_names())
                raise ConfigError(f"counts have policy {policy}; choose from {known}")

    def values(self, key: str, default: str = "") -> Values:
        """Values of a key; `default` is what `bench-schedule` takes where it is not given."""
        return self.settings.get(key, (default,))

    @property
    def overrides(self) -> tuple[str, ...]:
        """What one would type after `bench-schedule`."""
        return tuple(f"{key}={','.join(values)}" for key, values in self.settings.items())

    @property
    def is_timed(self) -> bool:
        """Whether time is given to scheduling and learning, so that their seconds are shown."""
        return self.values(SECONDS)[0] not in ("0", "0.0")

    @property
    def sweep_id(self) -> str:
        """Path-safe text that names the sweep, ending in a hash of all it is asked for."""
        digest = hashlib.sha256(json.dumps(sorted(self.settings.items())).encode()).hexdigest()[:8]
        first, *others = self.settings["model"]
        more = f"_and_{len(others)}_more" if others else ""
        return f"sweep-{first}{more}-{digest}"

    def path(self, results_dir: Path) -> Path:
        """Where its rows go; their records are in raw/counts, and may be shared with others."""
        return results_dir / "counts" / f"{self.sweep_id}.json"


def sweep_of(place: str, content: Any) -> Sweep:
    """Read an entry of `counts`; raises ConfigError, which begins with the place."""
    if not isinstance(content, dict):
        raise ConfigError(f"{place} has the counts {content!r}; an entry maps keys to values")
    try:
        settings = {str(key): _texts(key, value) for key, value in content.items()}
        if "policy" in settings:
            settings["policy"] = _policies(settings["policy"])
        return Sweep(settings)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error


def _texts(key: str, value: Any) -> Values:
    values = value if isinstance(value, list) else [value]
    for one in values:
        if isinstance(one, bool) or not isinstance(one, str | int | float):
            raise ConfigError(f"counts have {key}={one!r}; give texts or numbers")
    return tuple(dict.fromkeys(str(one) for one in values))


def _policies(values: Values) -> Values:
    """Names as they stand; `all` adds every policy there is, `not:NAME` leaves one out again."""
    found: list[str] = []
    for value in values:
        if value == "all":
            found += policy_names()
        elif not value.startswith(LEFT_OUT):
            found.append(value)
    left_out = [value.removeprefix(LEFT_OUT) for value in values if value.startswith(LEFT_OUT)]
    unknown = sorted(set(left_out) - set(policy_names()))
    if unknown:
        raise ConfigError(
            f"counts leave out policy {unknown[0]}; choose from {', '.join(policy_names())}"
        )
    return tuple(name for name in dict.fromkeys(found) if name not in left_out)


def counting_sha256(
    modules: Iterable[str], said: Collection[str], hashes: SourceHashes | None = None
) -> str:
    """Hash the counter and the `modules` of what it counts: models and loaders.

    said: names of modules, such as policies, that count as imported; see imported_files. hashes:
    which knows what others have read.
    """
    return (hashes or SourceHashes()).of_modules(sorted({COUNTER, *modules}), said)
