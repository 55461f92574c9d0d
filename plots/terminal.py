"""Closing lines of `bench` and `bench-try`: which system is fastest, and by how much."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from dynbatch.harness.contracts.corpus import OWN_DATA
from dynbatch.harness.planning.kinds import SystemFile
from dynbatch.harness.records.numbers import (
    RATIO,
    find_differing,
    find_workload_keys,
    numbers,
    ratios,
    select_fastest,
)
from dynbatch.harness.records.tidy import OWN_CHECKSUM, OWN_PATH
from dynbatch.harness.terminal.reporting import format_speed
from dynbatch.harness.values.paths import shorten_paths
from dynbatch.plots.tables.cells import DAGGER, format_ratio

WORKLOAD = ("model", "dataset", "mode", "batch_size", "hidden_size")  # named in every line
OWN_KEYS = (OWN_PATH, OWN_CHECKSUM)


def rank_systems(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each workload on which several trials have a number, the fastest first.

    Systems that compute nothing are omitted, as their results are not checked.
    """
    checked = rows[rows.check != "skipped"] if len(rows) else rows
    for workload, part in _split_workloads(checked):
        gains = _compare_with_fastest(part)
        if len(gains) > 1:
            names = _name_trials(part)
            (_, first), *others = gains.iterrows()
            over = [f"{gain.text} over {names[gain.trial_id]}" for _, gain in others]
            yield (
                f"{workload}: fastest {names[first.trial_id]}, {format_speed(first.throughput)}"
                f" instances/s; speedup {', '.join(over)}{_explain(gains)}"
            )


def _compare_with_fastest(rows: pd.DataFrame) -> pd.DataFrame:
    """Compute the fastest trial's speedup over each trial, itself first.

    The fastest is the one over which no other has a speedup. Medians of ratios are not transitive,
    so there may be none: it is then the last of those that were compared.
    """
    fastest = select_fastest(rows, [])
    for _ in range(rows.trial_id.nunique()):
        gains = _compare(rows, fastest)
        if not (gains.value < 1).any():
            break
        fastest = rows[rows.trial_id == gains.trial_id.iloc[0]]
    is_fastest = gains.trial_id.isin(fastest.trial_id)
    return pd.concat([gains[is_fastest], gains[~is_fastest]])


def compare_with_baselines(
    rows: pd.DataFrame, base: str, systems: Iterable[SystemFile]
) -> Iterator[str]:
    """Yield a line for each workload: the base next to its fastest baseline and the matmul bound.

    Only the base's first trial without a changed policy is compared.
    """
    known = {system.name: system for system in systems}
    kinds = rows.system.map({name: system.kind for name, system in known.items()})
    for workload, part in _split_workloads(rows.assign(system_kind=kinds)):
        own = part[(part.system == base) & part.policy.isna()]
        own = own[own.trial_id.isin(own.trial_id[:1])]
        baselines = _compare(part[part.system_kind == "framework"], own)
        shares = _compare(part[part.system_kind == "upper_bound"], own)[:1]
        n = baselines.system.nunique()
        fastest = f"the fastest of {n} baseline{'s' if n > 1 else ''}"
        texts = [
            f"is {gain.text} times as fast as {fastest}, {known[gain.system].label}"
            + (" (no clear difference)" if gain.low <= 1 <= gain.high else "")
            for _, gain in baselines[:1].iterrows()
        ]
        texts += [f"reaches {share:.1%} of the matmul bound" for share in shares.value]
        if texts:
            texts[-1] += _explain(pd.concat([baselines[:1], shares]))
            yield f"{workload}: {known[base].label} {'; '.join(texts)}"


def _compare(rows: pd.DataFrame, base: pd.DataFrame) -> pd.DataFrame:
    """Compute the base's speedup over each trial with a number, the fastest trial first."""
    trial = ["system", "trial_id"]
    gains = numbers(ratios(rows, base, []), trial, RATIO)
    gains["throughput"] = numbers(rows, trial).value
    gains["text"] = list(map(format_ratio, gains.value, gains.low, gains.high, gains.warnings))
    return gains[gains.status == "ok"].sort_values("value", kind="stable")


def _split_workloads(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name and rows of each workload; names have sizes and all keys that differ.

    A file of the user's own has the shortest name that no other file has.
    """
    files = shorten_paths(rows[OWN_PATH].dropna().unique() if OWN_PATH in rows else ())
    keys = list(dict.fromkeys([*WORKLOAD, *find_workload_keys(rows)]))
    for _, part in rows.groupby(keys, sort=False, dropna=False):
        first = part.iloc[0]
        path = first.get(OWN_PATH)
        own = files[path] if isinstance(path, str) else None
        settings = [key for key in keys[2:] if own is None or key not in OWN_KEYS]
        dataset = first.dataset if own is None else f"{first.dataset} ({OWN_DATA}, {own})"
        yield " ".join([first.model, dataset, *_describe_settings(first, settings)]), part


def _name_trials(rows: pd.DataFrame) -> dict[str, str]:
    """Return a name for each trial: system, policy, and the options that differ between trials."""
    names = {}
    for _, alike in rows.groupby(["system", "policy"], dropna=False):
        keys = ["policy", *find_differing(alike)]
        for _, first in alike.drop_duplicates("trial_id").iterrows():
            names[first.trial_id] = " ".join([first.system, *_describe_settings(first, keys)])
    return names


def _describe_settings(row: pd.Series, keys: Sequence[str]) -> list[str]:
    """Return the settings that a row has, as KEY=VALUE with short keys."""
    settings = row[list(keys)].dropna().items()
    return [f"{str(key).rpartition('.')[2]}={value}".lower() for key, value in settings]


def _explain(gains: pd.DataFrame) -> str:
    """List the warnings that the daggers of ratios indicate."""
    warnings = sorted({*" ".join(gains.warnings).split()})
    return f" ({DAGGER} {', '.join(warnings)})" if warnings else ""
