"""Lookup of the records that match planned trials, whichever version of the code made them.

Records are matched by trial id first. A record of an older configuration matches if all settings
that both configurations have are equal: modules may have moved, and options may have been added,
removed or respelled (1, now "agenda"). A switch of the engine that only the trial names must have
been in effect as the trial wants it. Counts are matched likewise; one without the model's options,
from an old version, matches only requests of the options in conf/model. If several records match in
this way, none is returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from dynbatch.harness.counts.request import PlannedCount, parse_requests
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.sweep import Sweep
from dynbatch.harness.planning.yaml_files import read_mapping
from dynbatch.harness.records.count_row import AnyCount, CountRow
from dynbatch.harness.records.record import Record
from dynbatch.harness.trials.spec import TrialSpec

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


Rounds = Mapping[int, Record]

# Locations of code, which do not change the work.
_MODULES = frozenset({"adapter", "model_module", "loader"})

SWITCHES = tuple(field.name for field in fields(Switches))
RESPELT = {0: "off", 1: "agenda", 2: "depth"}  # DyNet's autobatch


class Answers:
    """Records by trial, for lookup by planned trials."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._by_trial: dict[str, dict[int, Record]] = {}
        for record in records:
            self._by_trial.setdefault(record.trial_id, {})[record.trial.round] = record
        self._alike: dict[tuple[Any, ...], list[str]] = {}
        for trial_id, rounds in self._by_trial.items():
            trial = next(iter(rounds.values())).trial
            self._alike.setdefault(_list_labels(trial), []).append(trial_id)

    def find_rounds(self, specs: Sequence[TrialSpec]) -> list[Rounds]:
        """Return the rounds of each trial of one plan; empty if no record matches."""
        by_name = {spec.trial_id for spec in specs} & self._by_trial.keys()
        # A plan may have a trial twice, for two purposes.
        names = {spec.trial_id: self._find_name(spec, by_name) for spec in specs}
        claims = Counter(names.values())
        trial_ids = (names[spec.trial_id] for spec in specs)
        return [
            self._by_trial[name] if name is not None and claims[name] == 1 else {}
            for name in trial_ids
        ]

    def _find_name(self, spec: TrialSpec, taken: Collection[str]) -> str | None:
        if spec.trial_id in taken:
            return spec.trial_id
        candidates = (name for name in self._alike.get(_list_labels(spec), ()) if name not in taken)
        fitting = [name for name in candidates if self._fits(name, spec)]
        return fitting[0] if len(fitting) == 1 else None

    def _fits(self, name: str, spec: TrialSpec) -> bool:
        record = next(iter(self._by_trial[name].values()))
        config = record.config
        if not config or not had_switches(spec, record):
            return False
        embedding_size = config.get("embedding_size") or config.get("hidden_size")
        return agree(_collect_wanted(spec), {**config, "embedding_size": embedding_size})


def had_switches(spec: TrialSpec, record: Record) -> bool:
    """Return whether the engine ran with the switches that the trial names and the record does not.

    The configuration of an older record omits switches that had their defaults. Its effective
    options have them. Only switches that are on or off are compared: the backend describes the
    others in its own words.
    """
    named = {name: spec.system_options[name] for name in SWITCHES if name in spec.system_options}
    omitted = named.keys() - record.config.get("system_options", {}).keys()
    if not omitted or not record.effective_options:
        return True
    wanted = Switches(**named).resolve_effective(train=spec.mode == "train")
    return all(
        record.effective_options.get(name, text) == text
        for name, text in wanted.format_values().items()
        if name in omitted and isinstance(getattr(wanted, name), bool)
    )


def agree(wanted: Mapping[str, Any], recorded: Mapping[str, Any]) -> bool:
    """Return whether nested mappings are equal in all shared keys, except respelled values."""
    for key in wanted.keys() & recorded.keys():
        a, b = wanted[key], recorded[key]
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if not agree(a, b):
                return False
        elif a != b and not _is_respelt(a, b):
            return False
    return True


def _is_respelt(a: Any, b: Any) -> bool:
    """Return whether one value is the current name of the other, an older number."""
    numbers = [x for x in (a, b) if isinstance(x, int) and not isinstance(x, bool)]
    return any(RESPELT.get(number) in (a, b) for number in numbers)


def _collect_wanted(spec: TrialSpec) -> dict[str, Any]:
    """Return the identity without modules, and with the defaults that a trial id omits."""
    wanted = {key: value for key, value in spec.identity.items() if key not in _MODULES}
    return wanted | {"order": spec.order, "timing": asdict(spec.timing)}


def _list_labels(trial: Any) -> tuple[Any, ...]:
    """Return the fields that make up a trial's name; both Trial and TrialSpec have them."""
    names = ("system", "policy", "model", "dataset", "batch_size", "hidden_size")
    more = ("mode", "device", "threads", "seed")
    return tuple(getattr(trial, name) for name in (*names, *more))
