"""Which records answer planned trials, by whichever version of the code they were made.

First by name. A record whose name is of an older configuration answers where all that both know is
equal: modules may have moved, and options may have come, gone or been spelt otherwise since (1,
now "agenda"). Where that leaves a choice, it answers nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from harness.records.record import Record
from harness.trials.spec import TrialSpec

Rounds = Mapping[int, Record]

# Where the code lies, which does not change the work.
_MODULES = frozenset({"adapter", "model_module", "loader"})

RESPELT = {0: "off", 1: "agenda", 2: "depth"}  # DyNet's autobatch


class Answers:
    """Records by trial, to be asked for planned trials."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._by_trial: dict[str, dict[int, Record]] = {}
        for record in records:
            self._by_trial.setdefault(record.trial_id, {})[record.trial.round] = record
        self._alike: dict[tuple[Any, ...], list[str]] = {}
        for trial_id, rounds in self._by_trial.items():
            trial = next(iter(rounds.values())).trial
            self._alike.setdefault(_labels(trial), []).append(trial_id)

    def to(self, specs: Sequence[TrialSpec]) -> list[Rounds]:
        """Return, for each trial of one plan, its rounds; none where nothing answers."""
        by_name = {spec.trial_id for spec in specs} & self._by_trial.keys()
        # A plan may hold a trial twice, for two uses of it.
        names = {spec.trial_id: self._name_for(spec, by_name) for spec in specs}
        claims = Counter(names.values())
        found = (names[spec.trial_id] for spec in specs)
        return [
            self._by_trial[name] if name is not None and claims[name] == 1 else {} for name in found
        ]

    def _name_for(self, spec: TrialSpec, taken: Collection[str]) -> str | None:
        if spec.trial_id in taken:
            return spec.trial_id
        candidates = (name for name in self._alike.get(_labels(spec), ()) if name not in taken)
        fitting = [name for name in candidates if self._fits(name, spec)]
        return fitting[0] if len(fitting) == 1 else None

    def _fits(self, name: str, spec: TrialSpec) -> bool:
        config = next(iter(self._by_trial[name].values())).config
        if not config:
            return False
        embedding_size = config.get("embedding_size") or config.get("hidden_size")
        return agree(_without_modules(spec.identity), {**config, "embedding_size": embedding_size})


def agree(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether two nested mappings are equal in every key that both have, and spell alike."""
    for key in wanted.keys() & found.keys():
        a, b = wanted[key], found[key]
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if not agree(a, b):
                return False
        elif a != b and not _is_respelt(a, b):
            return False
    return True


def _is_respelt(a: Any, b: Any) -> bool:
    """Whether one is today's word for what the other says with a number."""
    numbers = [x for x in (a, b) if isinstance(x, int) and not isinstance(x, bool)]
    return any(RESPELT.get(number) in (a, b) for number in numbers)


def _without_modules(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in identity.items() if key not in _MODULES}


def _labels(trial: Any) -> tuple[Any, ...]:
    """What stands in a trial's name; both Trial and TrialSpec have these fields."""
    names = ("system", "policy", "model", "dataset", "batch_size", "hidden_size")
    more = ("mode", "device", "threads", "seed")
    return tuple(getattr(trial, name) for name in (*names, *more))
