"""Which points of a grid answer a claim: pairs that differ in nothing but what is compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from harness.errors import ConfigError
from harness.planning.claims import BOUND, Answer, Claim, Wanted
from harness.planning.conf_files import choices_of
from harness.planning.grid import EXPERIMENT, Settings, expand
from harness.planning.sweep import Sweep

SIDES = ("of", "over", "at")
_COUNTED = ("model", "split", "batch_size", "granularity", "policy")
_DEFAULTS = {"split": "train", "granularity": "vertex"}
# What was measured; all other keys of timing say how long.
_WHAT = {"timing.n_mini_batches", "timing.n_instances"}
_EQUALLY_LONG = ("bilstm_synthetic", "complete_trees", "ptb_fixed")  # beginnings of data sets


@dataclass(frozen=True, slots=True)
class Comparison:
    """One point of a claim: places, in a list of settings, of its two sides.

    at: what both sides share. over: empty where the quantity itself counts.
    """

    at: Settings
    of: tuple[int, ...]
    over: tuple[int, ...]


def comparisons(answer: Answer, settings: Sequence[Settings]) -> tuple[Comparison, ...]:
    """Every point at which the settings hold all sides of a claim."""
    sides = {"of": answer.of, **({"over": answer.over} if answer.over else {})}
    found: dict[tuple[tuple[str, str], ...], dict[str, list[int]]] = {}
    shared: dict[tuple[tuple[str, str], ...], Settings] = {}
    for place, one in enumerate(settings):
        if not _fits(one, answer.at):
            continue
        rest = _rest(answer, one)
        key = tuple(sorted((name, str(value)) for name, value in rest.items()))
        for side, wanted in sides.items():
            if _fits(one, wanted) and (one.get("policy") is None or "policy" in wanted):
                found.setdefault(key, {name: [] for name in sides})[side].append(place)
                shared.setdefault(key, rest)
    return tuple(
        Comparison(shared[key], tuple(places["of"]), tuple(places.get("over", ())))
        for key, places in found.items()
        if all(places.values())
    )


def _fits(settings: Settings, wanted: Wanted) -> bool:
    return all(str(settings.get(key)) in values for key, values in wanted.items())


def _rest(answer: Answer, settings: Settings) -> dict[str, object]:
    """What both sides of a point share, but how long was measured.

    Which mini-batches were measured is shared too, unless other ones would cost the same: where all
    instances are equally long. The best over batch sizes is of whatever was measured at each.
    """
    left_out = {EXPERIMENT, answer.best_over, *answer.of, *answer.over}
    left_out |= {key for key in settings if key.startswith("timing.") and key not in _WHAT}
    is_alike = str(settings.get("dataset")).startswith(_EQUALLY_LONG)
    if is_alike or answer.best_over == "batch_size":
        left_out |= _WHAT
    return {key: value for key, value in settings.items() if key not in left_out}


def counted_settings(sweeps: Sequence[Sweep]) -> Iterator[Settings]:
    """What a sweep counts, as settings; the lower bound beside the policies."""
    for sweep in sweeps:
        values = [sweep.values(key, _DEFAULTS.get(key, "")) for key in _COUNTED[:-1]]
        for point in product(*values, (*sweep.values("policy"), BOUND)):
            yield dict(zip(_COUNTED, point, strict=True))


def check_claims(claims: Sequence[Claim], conf_dir: Path) -> None:
    """Raise ConfigError, one line, where a claim names what does not exist."""
    systems = choices_of("system", conf_dir)
    for claim in claims:
        if claim.answer is not None:
            try:
                _check_systems(claim.answer, systems)
                _check_points(claim.answer, conf_dir)
            except ConfigError as error:
                raise ConfigError(f"claims/{claim.name}.yaml: {error}") from error


def _check_systems(answer: Answer, systems: Sequence[str]) -> None:
    for wanted in (answer.of, answer.over, answer.at):
        for name in wanted.get("system", ()):
            if name not in systems:
                raise ConfigError(
                    f"answer names system {name}, which conf/system has not; choose one of"
                    f" {', '.join(systems)}"
                )


def _check_points(answer: Answer, conf_dir: Path) -> None:
    """Every scale has a point, and every value that is wanted is one of a scale."""
    what = "counts" if answer.counts_batches else "trials"
    known: dict[str, dict[str, None]] = {}
    for scale in answer.scales:
        grid = expand(answer.experiment, scale, conf_dir)
        if grid.of_claims or grid.trials_of:
            raise ConfigError(
                f"answer names experiment {answer.experiment}, which itself shows trials of others;"
                " name one that measures"
            )
        settings = list(counted_settings(grid.sweeps)) if answer.counts_batches else grid.settings
        for one in settings:
            for key, value in one.items():
                known.setdefault(key, {})[str(value)] = None
        if not comparisons(answer, settings):
            sides = ", ".join(f"{side} {_words(getattr(answer, side))}" for side in SIDES)
            raise ConfigError(
                f"experiment {answer.experiment} has no {what} at scale {scale} that fit: {sides};"
                " correct them, or leave the scale out"
            )
    place = f"experiment {answer.experiment} at scale {' or '.join(answer.scales)}"
    for key, value in (pair for side in SIDES for pair in _values(getattr(answer, side))):
        if value not in known.get(key, ()):
            choices = ", ".join(known.get(key) or known)
            raise ConfigError(f"{place} has no {what} with {key}={value}; choose from {choices}")


def _values(wanted: Wanted) -> Iterator[tuple[str, str]]:
    return ((key, value) for key, values in wanted.items() for value in values)


def _words(wanted: Mapping[str, tuple[str, ...]]) -> str:
    return " ".join(f"{key}={','.join(values)}" for key, values in wanted.items()) or "nothing"
