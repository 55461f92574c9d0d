"""Several mini-batches in one call of `bench-schedule`: the table of policies by workloads."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from harness.contracts.model import model_class
from harness.counts.request import Request, parse_request
from harness.errors import ConfigError
from harness.planning.compose import Composer

# The first changes slowest.
SWEPT = ("model", "dataset", "split", "batch_size", "granularity", "learning.seed")


def parse_requests(settings: Sequence[str], composer: Composer | None = None) -> list[Request]:
    """Read key=value arguments where values may be listed with commas; see points_of.

    composer: composes many sweeps faster than a new one for each.
    """
    composer = composer or Composer()
    return [parse_request(point, composer) for point in points_of(settings, composer)]


def points_of(settings: Sequence[str], composer: Composer) -> list[list[str]]:
    """Settings of every mini-batch: one for each combination of values with commas between them.

    Of several models and data sets, only those meet that are of one kind. Raises ConfigError for a
    model or a data set that meets none.
    """
    listed: dict[str, list[str]] = {}
    for setting in settings:
        key, _, values = setting.partition("=")
        if key in SWEPT and "," in values:
            listed[key] = list(dict.fromkeys(values.split(",")))
    keys = [key for key in SWEPT if key in listed]
    rest = [setting for setting in settings if setting.partition("=")[0] not in listed]
    points = [
        [*rest, *(f"{key}={value}" for key, value in zip(keys, values, strict=True))]
        for values in itertools.product(*(listed[key] for key in keys))
    ]
    if not listed.keys() & {"model", "dataset"}:
        return points
    return _fitting(points, listed, composer)


def _fitting(
    points: list[list[str]], listed: Mapping[str, list[str]], composer: Composer
) -> list[list[str]]:
    kept = []
    for point in points:
        config = composer.compose(["system=null", *(p for p in point if _names_group(p))])
        if model_class(config.model.model).instance_kind == config.dataset.instance_kind:
            kept.append(point)
    for key in ("model", "dataset"):
        for value in listed.get(key, ()):
            if not any(f"{key}={value}" in point for point in kept):
                other = "dataset" if key == "model" else "model"
                raise ConfigError(
                    f"{key}={value} has instances of another kind than every {other} given;"
                    f" leave it out, or add a {other} of its kind"
                )
    return kept


def _names_group(setting: str) -> bool:
    return setting.partition("=")[0] in ("model", "dataset")
