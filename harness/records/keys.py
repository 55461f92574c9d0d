"""Keys of a tidy frame: settings that tell workloads apart, and those that tell trials apart."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

# Systems are compared on a workload. Timing is no part of it: slow systems may time fewer passes.
WORKLOAD = (
    *("model", "mode", "batch_size", "hidden_size", "dataset", "split", "order"),
    *("embedding_size", "device", "threads", "seed"),
)
WORKLOAD_OPTIONS = ("model.options.", "dataset.options.")
COUNT_KEYS = ("graph", "granularity", "outputs", "mini_batch")
TRIAL_OPTIONS = ("system.options.", "learning.", "learning_rate", "timing.")


def find_workload_keys(rows: pd.DataFrame) -> list[str]:
    """Return the settings in which the workloads of these rows differ; empty if there is one.

    Options of models and datasets are keys only if workloads are alike in everything else.
    """
    keys = [key for key in WORKLOAD if key in rows and _differs(rows[key])]
    return _add_needed(rows, keys, _columns_with(rows, WORKLOAD_OPTIONS))


def find_point_keys(rows: pd.DataFrame) -> list[str]:
    """Return `system`, the keys of workloads, and options that tell trials of a system apart."""
    keys = ["system", *find_workload_keys(rows)]
    candidates = [key for key in ("kind", "policy", *COUNT_KEYS) if key in rows]
    return _add_needed(rows, keys, [*candidates, *_columns_with(rows, TRIAL_OPTIONS)])


def find_differing(rows: pd.DataFrame, prefixes: tuple[str, ...] = TRIAL_OPTIONS) -> list[str]:
    """Return the options that are not the same in all rows."""
    columns = _columns_with(rows, prefixes)
    return [name for name in columns if _differs(rows[name])]


def _columns_with(rows: pd.DataFrame, prefixes: tuple[str, ...]) -> list[str]:
    return [str(name) for name in rows if str(name).startswith(prefixes)]


def _differs(column: pd.Series) -> bool:
    return len(column.drop_duplicates()) > 1  # a missing value is a value, too


def _add_needed(rows: pd.DataFrame, keys: Iterable[str], candidates: Iterable[str]) -> list[str]:
    """Add each candidate that differs among rows that are alike in all keys so far."""
    keys = list(keys)
    n_groups = len(rows[keys].drop_duplicates()) if keys else 1
    for name in candidates:
        n_finer = len(rows[[*keys, name]].drop_duplicates())
        if n_finer > n_groups:
            keys.append(name)
            n_groups = n_finer
    return keys
