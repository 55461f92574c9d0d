"""The benchmark: what it measures, counts and runs, in layers; see docs/map.md.

Its Python interface (docs/notebook.md), loaded on first use so that trials never import pandas:

    frame(path)                    records and counts of a directory as one tidy DataFrame
    select(rows, key=value, ...)   rows with these settings
    numbers(rows, by, quantity)    medians over rounds, with intervals
    ratios(rows, base)             a system over another one, in each round
    select_fastest(rows)           the fastest trial of each workload
    merge_seeds(values)            numbers of several learning seeds as one
    published(table, model)        numbers of a paper, in the same columns
    measure(key=value, ...)        measure a sweep and return its frame
"""

import importlib
from typing import Any

# Relative names: the hash of a trial's code (SourceHashes) would include a full name in a string.
_HOMES = {
    "frame": "records.tidy",
    "select": "api",
    "numbers": "records.numbers",
    "ratios": "records.numbers",
    "select_fastest": "records.numbers",
    "merge_seeds": "records.numbers",
    "published": "dynbatch.plots.published",
    "measure": "api",
}
_OTHER_NAMES = {"published": "read_published"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'harness' has no attribute {name!r}")
    home = _HOMES[name] if name == "published" else f"{__name__}.{_HOMES[name]}"
    return getattr(importlib.import_module(home), _OTHER_NAMES.get(name, name))


def __dir__() -> list[str]:
    return sorted(_HOMES)
