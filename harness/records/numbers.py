"""Numbers of a tidy frame: medians over rounds, ratios within rounds, medians over seeds.

A number is a row: its keys, then `value`, `low`, `high`, `n_rounds`, `status` and `warnings`.

Example:
    >>> rows = dynbatch.frame("results").query("model == 'tree_lstm'")
    >>> speedups = dynbatch.ratios(rows, base=rows.query("system == 'vertex'"))
    >>> dynbatch.numbers(speedups, quantity="ratio")
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dynbatch.harness.errors import RecordError, suggest_name
from dynbatch.harness.records import pairs
from dynbatch.harness.records.stats import name_interval, summarize_rounds
from dynbatch.harness.records.tidy import SEED, TYPE_SEED, get_quantity, is_setting

NOT_MEASURED, NOT_PLANNED, NOT_SEPARABLE = "not measured", "not planned", "not separable"
TIME = "instance_s"  # the quantity of ratios by default: seconds per instance
TIMES = (TIME, "mini_batch_ms")  # of whole passes; mini-batches of a block have equal sizes
RATIO = "ratio"
WIDE_INTERVAL = "wide_interval"
_BASE_FACTS = ("group", "group_facts", "trial_id", *pairs.PAIR_COLUMNS)
_BASE_COLUMNS = [f"base_{name}" for name in _BASE_FACTS]
_ALL = "_all"  # a key that all rows share, so that no key is needed
# Columns that decide whether rows are comparable; copying all columns of a frame would cost time.
_SHARED = ("trial_id", "dataset", "group", "group_facts", "inputs_key", "inputs_sha256")
NUMBER_COLUMNS = (
    *("value", "low", "high", "interval", "n_rounds"),
    *("status", "warnings", "is_partial"),
)


def numbers(
    rows: pd.DataFrame, by: str | Sequence[str] | None = None, quantity: str = "throughput"
) -> pd.DataFrame:
    """Summarize a quantity over the rounds of each point: the median and an interval.

    The interval is the range of up to five rounds, and a 95% interval of the median from six on.
    If any round of a point failed, the point has that round's status and no value. Rounds that
    are not measured yet do not count; `is_partial` marks their points.

    Args:
        by: Columns that identify points, e.g. ["system", "batch_size"]; None: `system` and all
            settings that are needed (find_point_keys).
        quantity: A column of numbers (`dynbatch.harness.records.tidy.QUANTITIES`).

    Raises:
        RecordError: A column is unknown, `by` does not distinguish two trials, or rows that may
            only differ in their trials differ in machines, versions or inputs.
    """
    by = find_point_keys(rows) if by is None else _list_names(by)
    check_columns(rows, [*by, "round", "status", "warnings"])
    values = get_quantity(rows, quantity).to_numpy(dtype=float, na_value=np.nan)
    if not len(rows):
        return pd.DataFrame(columns=[*by, "quantity", *NUMBER_COLUMNS])
    _check_unambiguous(rows, by)
    keys = rows[by].reset_index(drop=True)
    columns_of_points = list(dict.fromkeys([_ALL, *by]))
    points = keys.assign(**{_ALL: 0}).groupby(columns_of_points, sort=False, dropna=False)
    groups = points.ngroup().to_numpy()
    firsts = np.unique(groups, return_index=True)[1]
    _check_tables(rows, by)
    members = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])
    columns = _collect_round_columns(rows)
    summaries = [_summarize(values, columns, member) for member in members]
    result = keys.iloc[firsts].reset_index(drop=True)
    result["quantity"] = quantity
    return pd.concat([result, pd.DataFrame(summaries, columns=list(NUMBER_COLUMNS))], axis=1)


def _list_names(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _check_tables(rows: pd.DataFrame, by: Sequence[str]) -> None:
    """Check that rows of one workload are comparable, whatever their system."""
    shared = [name for name in by if name not in _TRIAL and not name.startswith(TRIAL_OPTIONS)]
    shared = [_ALL, *(name for name in ("threads", "device") if name in rows), *shared]
    measured = _select_measured(rows, shared).reset_index(drop=True).assign(**{_ALL: 0})
    if not len(measured):
        return
    tables = measured.groupby(list(dict.fromkeys(shared)), sort=False, dropna=False).ngroup()
    firsts = np.unique(tables, return_index=True)[1]
    check_alike(measured, measured.iloc[firsts[tables]])
    check_like_inputs(measured)


def _select_measured(rows: pd.DataFrame, names: Iterable[str] = ()) -> pd.DataFrame:
    """Select measured rows, and of their columns the given ones and those in _SHARED."""
    columns = [name for name in dict.fromkeys([*names, *_SHARED]) if name in rows]
    return rows.loc[rows.status == "ok", columns]


def check_like_inputs(rows: pd.DataFrame) -> None:
    """Check that rows whose settings determine the same inputs ran the same inputs."""
    if not {"inputs_key", "inputs_sha256"} <= set(rows):
        return
    known = rows[(rows.inputs_sha256.fillna("") != "") & rows.inputs_key.notna()]
    firsts = known.groupby("inputs_key").inputs_sha256.transform("first")
    unlike = known[known.inputs_sha256 != firsts]
    if not len(unlike):
        return
    second = unlike.iloc[0]
    first = known[known.inputs_key == second.inputs_key].iloc[0]
    raise RecordError(
        f"{first.trial_id} and {second.trial_id} are not comparable: they ran different"
        f" inputs of {second.dataset}; measure one again or select rows of one inputs_sha256"
    )


def check_alike(rows: pd.DataFrame, others: pd.DataFrame) -> None:
    """Check that rows were measured on the same machines and versions as their partners.

    Args:
        others: The partner of each row, in the same order.
    """
    if "group" not in rows or "group" not in others:
        return
    own, other = rows.group.to_numpy(dtype=object), others.group.to_numpy(dtype=object)
    is_unlike = (own != other) & rows.group.notna().to_numpy() & others.group.notna().to_numpy()
    if not is_unlike.any():
        return
    first, second = (frame.iloc[int(np.argmax(is_unlike))] for frame in (rows, others))
    facts = [json.loads(row.get("group_facts") or "{}") for row in (first, second)]
    names = [name for name in facts[0] | facts[1] if facts[0].get(name) != facts[1].get(name)]
    differences = ", ".join(
        f"{name} {facts[0].get(name)} and {facts[1].get(name)}" for name in names
    )
    raise RecordError(
        f"{first.trial_id} and {second.trial_id} are not comparable: different"
        f" {differences or 'groups'}; select rows of one group"
    )


def check_columns(rows: pd.DataFrame, names: Sequence[str]) -> None:
    for name in names:
        if name not in rows:
            known = [str(column) for column in rows]
            raise RecordError(
                f"unknown column {name!r}{suggest_name(name, known)}; list(rows) has all"
                f" {len(known)}"
            )


def _check_unambiguous(rows: pd.DataFrame, by: Sequence[str]) -> None:
    """Check that no two records share a point and a round."""
    keys = list(dict.fromkeys([*by, "round"]))
    duplicated = rows.duplicated(keys, keep=False)
    if not duplicated.any():
        return
    alike = rows[duplicated].reset_index(drop=True)
    first = alike[alike.groupby(keys, sort=False, dropna=False).ngroup() == 0]
    trials = list(dict.fromkeys(first.trial_id.fillna("no record")))
    differing = [
        str(name)
        for name in sorted(map(str, alike), key=lambda name: ("." in name, name))
        if name not in by
        and (is_setting(name) or name in COUNT_KEYS)
        and len(first[name].astype(str).unique()) > 1
    ]
    added = [name for name in differing if name not in ("round", "seed")][:4]
    if len(trials) < 2 and not added:
        raise RecordError(
            f"ambiguous numbers: two records of round {first['round'].iloc[0]} of {trials[0]}; load"
            " one directory at a time, or select rows of one group"
        )
    shown = " and ".join(name for name in by if name != _ALL) or "the keys of the numbers"
    listed = ", ".join(added or ["trial_id"])
    example = _format_selection(first, (added or ["trial_id"])[0])
    raise RecordError(
        f"ambiguous numbers: {' and '.join(trials[:2])} do not differ in {shown}; add a key"
        f" (they differ in {listed}) or select one of them, e.g. by {example}"
    )


def _format_selection(rows: pd.DataFrame, name: str) -> str:
    """Return the call that selects the rows with the first row's value in a column."""
    value = rows[name].iloc[0]
    value = None if pd.isna(value) else value.item() if isinstance(value, np.generic) else value
    return f"select(rows, {name.replace('.', '__')}={value!r})"


def _collect_round_columns(rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the columns that a summary needs in addition to the values, as arrays."""
    return {
        "status": rows.status.to_numpy(dtype=object),
        "warnings": rows.warnings.fillna("").to_numpy(dtype=object),
        "is_paired": _get_flag(rows, "is_paired", default=True).to_numpy(),
        "is_partial": _get_flag(rows, "is_partial").to_numpy(),
    }


def _get_flag(rows: pd.DataFrame, name: str, *, default: bool = False) -> pd.Series:
    return rows.get(name, pd.Series(default, index=rows.index)).eq(True)


def _summarize(
    values: np.ndarray, columns: Mapping[str, np.ndarray], member: np.ndarray
) -> tuple[Any, ...]:
    """Return the NUMBER_COLUMNS of one point.

    Args:
        member: Positions of the point's rows, in values and in _collect_round_columns's columns.
    """
    is_missing = columns["status"][member] == NOT_MEASURED
    is_partial = bool(is_missing.any() or columns["is_partial"][member].any())
    if not is_missing.all():
        member = member[~is_missing]
    statuses = [status for status in columns["status"][member] if status != "ok"]
    # The status of a failed round takes precedence over a phase that is not separable.
    status = min(statuses, key=NOT_SEPARABLE.__eq__, default="ok")
    shared = columns["is_paired"][member]
    used = values[member][shared]
    if status == "ok" and not len(used):
        status = NOT_MEASURED
    if status == "ok" and np.isnan(used).any():
        status = NOT_SEPARABLE
    if status != "ok":
        return (np.nan, np.nan, np.nan, "", np.nan, status, "", False)
    summary = summarize_rounds(used)
    words = {*" ".join(columns["warnings"][member][shared]).split()}
    low, high = (np.nan if end is None else end for end in (summary.low, summary.high))
    warnings = sorted({*words, *([WIDE_INTERVAL] if summary.is_wide else [])})
    return (
        *(summary.median, low, high, name_interval(summary.n_rounds), summary.n_rounds),
        *("ok", " ".join(warnings), is_partial),
    )


def ratios(
    rows: pd.DataFrame,
    base: pd.DataFrame | str,
    at: str | Sequence[str] | None = None,
    quantity: str = TIME,
) -> pd.DataFrame:
    """Add `ratio`: each row's quantity divided by the base's in the same round and workload.

    For times, the ratio is the speedup of the base. For those of whole passes (TIMES), if both ran
    in one block, it is the median of the ratios within cycles, and the trial's rounds in other
    blocks do not count. If no round of both was in one block, the ratio is that of the rounds'
    medians, with a warning. Other warnings are those of both sides in shared rounds, and those of
    slow builds. If the base has no number, its status takes precedence.

    Args:
        base: Rows of one trial for each workload, or the name of a system in `rows`.
        at: Columns that identify workloads, e.g. ["model", "batch_size"]; may be empty; None: all
            settings in which workloads differ (find_workload_keys).
        quantity: A column of numbers, as for `numbers`.

    Raises:
        RecordError: A column or system is unknown, a workload has two bases, or a row and its base
            were measured on different machines or versions.
    """
    base = _select_base(rows, base) if isinstance(base, str) else base
    at = find_workload_keys(pd.concat([rows, base])) if at is None else _list_names(at)
    check_columns(rows, at)
    own, other = rows.reset_index(drop=True), base.reset_index(drop=True)
    own[_ALL], other[_ALL] = 0, 0
    keys = [_ALL, *at]
    both = _pair_rounds(own, other, keys, quantity)
    partners = both[_BASE_COLUMNS].rename(columns=lambda name: name.removeprefix("base_"))
    check_alike(both, partners)
    check_like_inputs(pd.concat([_select_measured(own), _select_measured(other)]))
    values = get_quantity(both, quantity)
    status = both.status.mask((both.status == "ok") & values.isna(), NOT_SEPARABLE)
    ratio = (values / both.base).where(both.base > 0).astype(float)
    is_paired = both.is_paired.notna()
    if quantity in TIMES:
        ratio = pairs.replace_by_ratios_in_cycles(ratio, both)
        is_paired &= ~pairs.find_replaceable(both)
    return both.assign(
        ratio=ratio,
        status=status.where(both.base_status == "ok", both.base_status),
        warnings=pairs.join_pair_warnings(both),
        is_paired=is_paired,
        is_partial=_get_flag(both, "is_partial") | both.base_partial.eq(True),
    ).drop(columns=[_ALL, "base_weak", "base_partial", *_BASE_COLUMNS])


def _pair_rounds(
    own: pd.DataFrame, other: pd.DataFrame, keys: Sequence[str], quantity: str
) -> pd.DataFrame:
    """Add to each row its base's facts: of the same round, and the status of all rounds."""
    status = numbers(other, keys, quantity)[[*keys, "status", "is_partial"]]
    status = status.rename(columns={"status": "base_status", "is_partial": "base_partial"})
    other = other[other.status != NOT_MEASURED]
    sides = other[[*keys, "round"]].assign(
        base=get_quantity(other, quantity),
        doubts=other.warnings,
        base_weak=other.weak_build,
        is_paired=True,
        **{f"base_{name}": other.get(name) for name in _BASE_FACTS},
    )
    dropped = ["base", "base_status", "base_partial", "doubts", "base_weak", "is_paired"]
    own = own.drop(columns=[*dropped, *_BASE_COLUMNS], errors="ignore")
    # Only keys are joined, and the columns added: joining all columns of a frame would cost time.
    both = _merge(own[[*keys, "round"]], status, keys).fillna({"base_status": NOT_PLANNED})
    both = _merge(both, sides, [*keys, "round"]).drop(columns=[*keys, "round"])
    return pd.concat([own, both], axis=1)


def _select_base(rows: pd.DataFrame, system: str) -> pd.DataFrame:
    known = [str(name) for name in rows.system.dropna().unique()]
    if system not in known:
        raise RecordError(
            f"no rows of base system {system!r}{suggest_name(system, known)}; choose from"
            f" {', '.join(known)}"
        )
    return rows[rows.system == system]


def _merge(left: pd.DataFrame, right: pd.DataFrame, on: Sequence[str]) -> pd.DataFrame:
    """Join on key columns, without multiplying rows; unlike types are compared as objects."""
    columns = [name for name in on if left[name].dtype != right[name].dtype]
    if not columns:
        return left.merge(right, on=list(on), how="left", validate="m:1")
    kept = left[columns]
    joined = left.assign(**{name: left[name].astype(object) for name in columns}).merge(
        right.assign(**{name: right[name].astype(object) for name in columns}),
        on=list(on),
        how="left",
        validate="m:1",
    )
    return joined.assign(**{name: kept[name] for name in columns})


def select_fastest(
    rows: pd.DataFrame,
    at: str | Sequence[str] | None = None,
    base: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Select, for each workload, the rows of the fastest trial.

    If a workload has no number, its first trial is selected, whose status explains why.

    Args:
        base: Rows of one trial for each workload. The fastest trial is then the one over which the
            base has the smallest speedup, as ratios within rounds vary less than throughputs. None,
            or a workload without any speedup: the one with the highest throughput.
    """
    if not len(rows):
        return rows
    at = find_workload_keys(rows) if at is None else _list_names(at)
    keys = [*at, *(["point"] if "point" in rows else ["trial_id"])]
    speed = numbers(rows, keys)[[*keys, "value"]].rename(columns={"value": "_speed"})
    by = ["_speed"]
    if base is not None:
        gains = numbers(ratios(rows, base, at), keys, RATIO)[[*keys, "value"]]
        speed = speed.merge(gains, on=keys, validate="1:1")
        speed["_paired"] = -speed.pop("value")
        by = ["_paired", "_speed"]
    speed = speed.sort_values(by, ascending=False, kind="stable", na_position="last")
    speed[_ALL] = 0
    fastest = speed.drop_duplicates([_ALL, *at])[keys]
    return rows.merge(fastest, on=keys, how="inner", validate="m:1")


def merge_seeds(values: pd.DataFrame) -> pd.DataFrame:
    """Merge numbers of several seeds, of learning or drawn types: median, smallest and largest.

    A number of a single seed retains its interval. If a seed has no number, the result has none.
    """
    seeds = [name for name in (SEED, TYPE_SEED) if name in values]
    if not seeds:
        return values
    keys = [name for name in values if name not in (*NUMBER_COLUMNS, *seeds)]
    if not values.duplicated(keys).any():
        return values.drop(columns=seeds).assign(n_seeds=1)
    groups = values.groupby(keys, sort=False, dropna=False)
    firsts = groups.head(1).drop(columns=seeds).reset_index(drop=True)
    merged = [_merge_points(group) for _, group in groups]
    return firsts.drop(columns=list(NUMBER_COLUMNS)).join(
        pd.DataFrame(merged, columns=[*NUMBER_COLUMNS, "n_seeds"]), validate="1:1"
    )


def _merge_points(points: pd.DataFrame) -> tuple[Any, ...]:
    first = points.iloc[0]
    if len(points) == 1:
        return (*(first[name] for name in NUMBER_COLUMNS), 1)
    failed = next((status for status in points.status if status != "ok"), "ok")
    if failed != "ok":
        return (np.nan, np.nan, np.nan, "", np.nan, failed, "", False, len(points))
    medians = points.value
    ends = (medians.median(), medians.min(), medians.max(), "range over seeds")
    warnings = " ".join(sorted({*" ".join(points.warnings).split()}))
    is_partial = bool(points.is_partial.any())
    return (*ends, points.n_rounds.min(), "ok", warnings, is_partial, len(points))


# Systems are compared on a workload. It excludes timing: slow systems may time fewer passes.
WORKLOAD = (
    *("model", "mode", "batch_size", "hidden_size", "dataset", "split", "order"),
    *("embedding_size", "device", "threads", "seed"),
)
WORKLOAD_OPTIONS = ("model.options.", "dataset.options.")
COUNT_KEYS = ("graph", "granularity", "outputs", "mini_batch")
TRIAL_OPTIONS = ("system.options.", "learning.", "learning_rate", "timing.")
# Columns that distinguish trials of one workload, in addition to their options.
_TRIAL = ("system", "policy", "kind", "point", "trial_id", "place", "side", "round")


def find_workload_keys(rows: pd.DataFrame) -> list[str]:
    """Return the settings in which the workloads of these rows differ; empty if there is one.

    Options of models and datasets are keys only if workloads are alike in everything else.
    """
    keys = [key for key in WORKLOAD if key in rows and _differs(rows[key])]
    return _add_needed(rows, keys, _select_columns(rows, WORKLOAD_OPTIONS))


def find_point_keys(rows: pd.DataFrame) -> list[str]:
    """Return `system`, the keys of workloads, and options that distinguish a system's trials."""
    keys = ["system", *find_workload_keys(rows)]
    candidates = [key for key in ("kind", "policy", *COUNT_KEYS) if key in rows]
    return _add_needed(rows, keys, [*candidates, *_select_columns(rows, TRIAL_OPTIONS)])


def find_differing(rows: pd.DataFrame) -> list[str]:
    return [name for name in _select_columns(rows, TRIAL_OPTIONS) if _differs(rows[name])]


def _select_columns(rows: pd.DataFrame, prefixes: tuple[str, ...]) -> list[str]:
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
