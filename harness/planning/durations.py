"""Expected durations of steps, from records of this machine or by rule; durations as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.machine.files import read_regular
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.values.checked import YEAR_S
from dynbatch.harness.values.paths import find_adapter_package, strip_package

# Seconds of a round in addition to twice timing.min_seconds, which precision may take: means over
# all rounds at medium scale and those of the headlines at the papers' sizes (2,914 records) on two
# cores of an AMD EPYC (Zen 5). On an Intel Xeon, rounds took almost twice as long.
PROCESS_S = {
    "copies": 0.8,
    "native": 1.4,
    "on_core": 1.2,
    "on_dynet": 1.6,
    "on_torch": 1.7,
    "on_tensorflow": 1.3,
    "on_jax": 1.2,
    "products": 2.2,
}
OTHERS_S = 4.0  # the same for other systems
# Seconds of a first compilation, which no cache has, on one core of an Intel Xeon, by the start of
# the adapter's name; the engine's own programs are compiled with the install.
COMPILING_S = {"on_torch.compiled": 44.0, "on_jax": 15.0, "on_tensorflow.static": 6.0}
STARTED_S = 0.2  # before its record starts, with the servers: 39 s of the same 228 records
COUNT_S = 2.0  # one sweep of bench-schedule
DRAWN_S = 1.0  # drawing of one experiment in a report of dozens

_PARTS = re.compile(
    r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?"
)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}


class Timed(NamedTuple):
    """Duration of the process of one record."""

    trial_id: str
    system: str
    model: str
    mode: str
    seconds: float
    compile_s: float = 0.0
    round: int = 0


class Durations:
    """Measured durations of processes: by trial, else by system and model, else by system.

    First rounds, which check all results, are estimated apart from later ones.
    """

    def __init__(self, timed: Iterable[Timed] = ()) -> None:
        self._by: dict[tuple[str, ...], list[Timed]] = {}
        known = list(timed)
        self.n_known = len(known)
        for record in known:
            for key in _build_keys(record):
                self._by.setdefault(key, []).append(record)
        trial_ids = {record.trial_id for record in known}
        self._later_share = _compute_later_share(self._by[trial_id,] for trial_id in trial_ids)

    def estimate_seconds(self, spec: TrialSpec, round_: int) -> float:
        alike = self._find_alike(spec, round_)
        if not alike:
            return estimate_usual_s(spec.adapter, spec.timing.min_seconds)
        seconds = median(record.seconds for record in alike)
        if (alike[0].round > 0) == (round_ > 0):
            return seconds
        return seconds * (self._later_share if round_ > 0 else 1 / self._later_share)

    def estimate_compile_s(self, spec: TrialSpec, round_: int) -> float:
        """Return the expected seconds of compilation in a round; 0 if none has been measured."""
        return median([record.compile_s for record in self._find_alike(spec, round_)] or [0.0])

    def _find_alike(self, spec: TrialSpec, round_: int) -> Sequence[Timed]:
        """Return the records of the most similar trials: of first or later rounds if possible."""
        alike = next((self._by[key] for key in _build_keys(spec) if key in self._by), [])
        return [record for record in alike if (record.round > 0) == (round_ > 0)] or alike


def _compute_later_share(trials: Iterable[Sequence[Timed]]) -> float:
    """Return the seconds of later rounds by those of first ones, over trials that have both."""
    first_s = later_s = 0.0
    for records in trials:
        first = [record.seconds for record in records if record.round == 0]
        later = [record.seconds for record in records if record.round > 0]
        if first and later:
            first_s, later_s = first_s + median(first), later_s + median(later)
    return later_s / first_s if first_s else 1.0


def estimate_usual_s(adapter: str, min_seconds: float) -> float:
    """Return the seconds of a round by rule, from its adapter's package and its timed seconds."""
    return PROCESS_S.get(find_adapter_package(adapter), OTHERS_S) + 2 * min_seconds


def estimate_preparing_s(adapter: str) -> float:
    """Return the seconds of compilation by rule, from an adapter's name."""
    name = strip_package(adapter)
    return next((s for prefix, s in COMPILING_S.items() if name.startswith(prefix)), 0.0)


def _build_keys(trial: Timed | TrialSpec) -> tuple[tuple[str, ...], ...]:
    system, model, mode = trial.system, trial.model, trial.mode
    return ((trial.trial_id,), (system, model, mode), (system, model), (system,))


def read_durations(results_dir: Path, cpu: str) -> Iterator[Timed]:
    """Yield the durations of a directory's records from CPUs with this text in their name.

    Systems of a block share its time, and each is charged an equal part.
    """
    blocks: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((results_dir / "raw").glob("*/r[0-9]*.json")):
        try:
            content = json.loads(read_regular(path))
            if cpu in content["machine"]["cpu"] and content["status"] == "ok":
                blocks.setdefault(content.get("block") or str(path), []).append(content)
        except (ValueError, KeyError, TypeError, OSError):  # damaged, reported when it is read
            continue
    for members in blocks.values():
        with suppress(ValueError, KeyError, TypeError):
            began = min(datetime.fromisoformat(content["started_at"]) for content in members)
            ended = max(datetime.fromisoformat(content["finished_at"]) for content in members)
            seconds = max(0.0, (ended - began).total_seconds()) / len(members) + STARTED_S
            for content in members:
                trial = content["trial"]
                names = (trial["system"], trial["model"], trial["mode"])
                compile_s = float(content.get("compile_s") or 0.0)
                yield Timed(content["trial_id"], *names, seconds, compile_s, int(trial["round"]))


def parse_duration(text: str, key: str = "budget") -> float:
    """Parse "45m", "1h30m" or "90s"; raise ConfigError, which names the key, for other texts."""
    match = _PARTS.fullmatch(text.strip())
    parts = {unit: float(n) for unit, n in match.groupdict().items() if n} if match else {}
    seconds = sum(n * _SECONDS[unit] for unit, n in parts.items())
    if not 0 < seconds <= YEAR_S:
        raise ConfigError(
            f"{key}={text} is not allowed: expected a duration such as 45m, 1h30m or 90s, at most"
            " 1 year"
        )
    return seconds


def format_duration(seconds: float) -> str:
    """Format a duration: "40 s", "12 min", "1 h 20 min"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(5 * round(minutes / 5), 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"
