"""The benchmark: harness, systems, datasets, plots, conf and workflow under one import name.

In a checkout these are links to the directories of the repository's root; a wheel has the files.
The Python interface (docs/notebook.md) is loaded on first use, so that trials never import pandas:

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
    "frame": "harness.records.tidy",
    "select": "harness.api",
    "numbers": "harness.records.numbers",
    "ratios": "harness.records.numbers",
    "select_fastest": "harness.records.numbers",
    "merge_seeds": "harness.records.numbers",
    "published": "plots.published",
    "measure": "harness.api",
}
_OTHER_NAMES = {"published": "read_published"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    return getattr(home, _OTHER_NAMES.get(name, name))


def __dir__() -> list[str]:
    return sorted(_HOMES)
