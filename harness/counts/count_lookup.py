"""Lookup of the count records that match a planned sweep, whichever version of the code made them.

Records are matched by count id first. A record with another id matches if all settings that it
has are as requested. One without the model's options, from an old version, matches only requests of
the options in conf/model. If several records match in this way, none is returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dynbatch.harness.counts.request import PlannedCount, parse_requests
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.sweep import Sweep
from dynbatch.harness.planning.yaml_files import read_mapping
from dynbatch.harness.records.count_row import AnyCount, CountRow

_COMPARED = (
    "model",
    "dataset",
    "split",
    "batch_size",
    "granularity",
    "outputs",
    "offset",
    "policy",
)


class CountAnswers:
    """Count records for lookup by sweeps.

    Args:
        composer: Composer of the caller, which caches configurations; None creates a new one.
    """

    def __init__(self, rows: Iterable[AnyCount], composer: Composer | None = None) -> None:
        self._by_name = {row.count_id: row for row in rows}
        self._alike: dict[tuple[Any, ...], list[AnyCount]] = {}
        for row in self._by_name.values():
            self._alike.setdefault(_build_row_key(row), []).append(row)
        self._composer = composer or Composer()
        self._answered: dict[str, list[AnyCount | None]] = {}
        self._default_options: dict[str, dict[str, Any]] = {}

    def to(self, sweep: Sweep) -> list[AnyCount]:
        """Return the counts of a sweep in its order, without the missing ones."""
        return [row for row in self._find_all(sweep) if row is not None]

    def count_missing(self, sweep: Sweep) -> int:
        return self._find_all(sweep).count(None)

    def _find_all(self, sweep: Sweep) -> list[AnyCount | None]:
        if sweep.sweep_id not in self._answered:
            rows = [self._answer_to(count) for count in self._plan_counts(sweep)]
            self._answered[sweep.sweep_id] = rows
        return self._answered[sweep.sweep_id]

    def _plan_counts(self, sweep: Sweep) -> Iterator[PlannedCount]:
        for request in parse_requests(sweep.overrides, self._composer):
            for policy in request.policies:
                yield PlannedCount(request, policy, source_sha256="")

    def _answer_to(self, planned: PlannedCount) -> AnyCount | None:
        by_name = self._by_name.get(planned.count_id)
        if by_name is not None:
            return by_name
        spec = planned.request.spec
        options = dict(spec.model_options)
        accepted: list[dict[str, Any] | None] = [options]
        if options == self._find_default_options(spec.model):
            accepted.append(None)
        alike = [
            row
            for row in self._alike.get(_build_count_key(planned), [])
            if row.model_options in accepted
        ]
        return alike[0] if len(alike) == 1 else None

    def _find_default_options(self, model: str) -> dict[str, Any]:
        if model not in self._default_options:
            content = read_mapping(self._composer.conf_dir / f"model/{model}.yaml")
            self._default_options[model] = content.get("options", {})
        return self._default_options[model]


def _build_row_key(row: AnyCount) -> tuple[Any, ...]:
    following = row.following if isinstance(row, CountRow) else None
    n_following = len(following.n_batches) if following else 0
    return (*(getattr(row, name) for name in _COMPARED), row.learning, n_following)


def _build_count_key(planned: PlannedCount) -> tuple[Any, ...]:
    asked = planned.build_request_labels()
    values = tuple(asked[name] for name in _COMPARED)
    return (*values, asked["learning"], planned.request.n_following)
