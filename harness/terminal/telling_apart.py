"""Names of a run's trials in a few words each, no two trials alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.contracts.options import in_word
from harness.records.record import trial_of
from harness.terminal.reporting import trial_words
from harness.trials.spec import TrialSpec

_PARTS = {"system_options": "system", "model_options": "model", "dataset_options": "dataset"}


def words_of_all(specs: Sequence[TrialSpec]) -> list[str]:
    """As trial_words, with the options by which trials differ that it calls the same."""
    alike = defaultdict(list)
    for spec in specs:
        alike[trial_words(trial_of(spec))].append(spec)
    apart = {words: _differing(group) for words, group in alike.items()}
    return [
        " ".join([words, *(f"{key}={in_word(value)}" for key, value in _said(spec, apart[words]))])
        for spec in specs
        for words in [trial_words(trial_of(spec))]
    ]


def _differing(group: Sequence[TrialSpec]) -> list[str]:
    """Dotted keys of the values that are not the same for all."""
    values = [dict(_flat(spec.to_dict())) for spec in group]
    keys = dict.fromkeys(key for one in values for key in one)
    return [key for key in keys if any(one.get(key) != values[0].get(key) for one in values)]


def _said(spec: TrialSpec, keys: Sequence[str]) -> Iterator[tuple[str, Any]]:
    values = dict(_flat(spec.to_dict()))
    return ((key, values[key]) for key in keys if key in values)


def _flat(values: Mapping[str, Any], *above: str) -> Iterator[tuple[str, Any]]:
    """Keys as they are typed."""
    for key, value in values.items():
        path = (*above, *((_PARTS[key], "options") if key in _PARTS else (key,)))
        if isinstance(value, Mapping):
            yield from _flat(value, *path)
        else:
            yield ".".join(path), value
