"""Names of a run's trials in a few words each, no two trials alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.contracts.options import in_word
from harness.records.record import trial_of
from harness.terminal.reporting import trial_words
from harness.trials.spec import TrialSpec

Options = Mapping[str, Any]  # by keys as they are typed, with dots

_PARTS = {"system_options": "system", "model_options": "model", "dataset_options": "dataset"}


def words_of_all(specs: Sequence[TrialSpec]) -> list[str]:
    """As trial_words, with the options by which trials differ that it calls the same."""
    words = [trial_words(trial_of(spec)) for spec in specs]
    options = [dict(_flat(spec.to_dict())) for spec in specs]
    alike = defaultdict[str, list[Options]](list)
    for name, said in zip(words, options, strict=True):
        alike[name].append(said)
    apart = {name: _differing(group) for name, group in alike.items()}
    return [
        " ".join([name, *(f"{key}={in_word(said[key])}" for key in apart[name] if key in said)])
        for name, said in zip(words, options, strict=True)
    ]


def _differing(group: Sequence[Options]) -> list[str]:
    """Keys of the values that are not the same for all."""
    keys = dict.fromkeys(key for said in group for key in said)
    return [key for key in keys if any(said.get(key) != group[0].get(key) for said in group)]


def _flat(values: Mapping[str, Any], *above: str) -> Iterator[tuple[str, Any]]:
    """Keys as they are typed."""
    for key, value in values.items():
        path = (*above, *((_PARTS[key], "options") if key in _PARTS else (key,)))
        if isinstance(value, Mapping):
            yield from _flat(value, *path)
        else:
            yield ".".join(path), value
