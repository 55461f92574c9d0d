"""Tidy frame of records: one row per round of a trial, and one per counted mini-batch.

Each setting is a column under its `bench` key (`batch_size`, `dataset.options.n_leaves`), each
quantity a column of its own, so that `groupby`, `query` and `plot` work without any reshaping.
docs/records.md has the unit and the meaning of each column.

Example:
    >>> import dynbatch
    >>> rounds = dynbatch.frame("results/reference/amd-epyc-zen5-2cpu-2026-11-29/paper")
    >>> rounds.query("model == 'tree_lstm'").groupby("system").throughput.median()
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dynbatch.harness.contracts.system import PHASES
from dynbatch.harness.errors import RecordError, suggest_name
from dynbatch.harness.records.count_row import AnyCount, CountRow, Generalization
from dynbatch.harness.records.cross_check import (
    collect_group_facts,
    cross_check_records,
    hash_build,
    hash_declared_inputs,
    hash_group,
)
from dynbatch.harness.records.record import Record, Trial
from dynbatch.harness.records.store import read_all_records
from dynbatch.harness.records.turns import Seconds, collect_turn_seconds, compute_cpu_share

Quantity = Callable[[pd.DataFrame], "pd.Series[float]"]

PLAIN, RELEASED = "plain", "released"  # our graph, and that of ED-Batch's release
SEED = "learning.seed"
MODEL_OPTION = "model.options."  # prefix of columns
TYPE_SEED = f"{MODEL_OPTION}type_seed"  # of trees whose types are drawn
# Warnings of slow builds, which apply to every ratio against them. DyNet's wheel has no BLAS.
WEAK_BUILDS = {"wheel": "dynet_without_blas"}
# Warning of a run on other kernels than those of the device's first backend.
OTHER_KERNELS = "other_kernels"
# Path and checksum of a file of the user's own.
OWN_PATH, OWN_CHECKSUM = "dataset.options.path", "dataset.options.sha256"
SECTIONS = {
    "system.options": "system_options",
    "model.options": "model_options",
    "dataset.options": "dataset_options",
    "timing": "timing",
    "learning": "learning",
}
LEARNING = ("variant", "fallback", "trials", "seed")  # settings of a learned policy
SETTINGS = ("split", "order", "embedding_size", "learning_rate")
RECORDED = (  # numbers under the names of a record's fields
    *("instances_per_s", "n_instances", "n_mini_batches", "n_batches", "lower_bound"),
    *("n_launches", "n_copies", "bytes_copied", "bytes_touched", "n_flop"),
    *("data_movement_fraction", "n_compilations", "compile_s", "learn_s"),
    *("unseen_slowdown", "peak_memory_bytes", "baseline_memory_bytes"),
)
PHASE_SECONDS = tuple(f"{phase}_s" for phase in PHASES)
COUNTED = (
    *("n_nodes", "n_parameters", "n_tried", "unseen_fraction"),
    *("n_following", "following_over_bound", "following_unseen_fraction"),
)
MEASURED = (*RECORDED, *PHASE_SECONDS, *COUNTED)


def _sum_phases(data: pd.DataFrame, *phases: str) -> pd.Series[float]:
    """Return the seconds of phases; one that the system cannot separate counts as 0."""
    return data[[f"{phase}_s" for phase in phases]].fillna(0).sum(axis=1)


def _to_milliseconds(column: str) -> Quantity:
    return lambda f: 1e3 * f[column]


def _find_memory_before(data: pd.DataFrame) -> pd.Series[float]:
    """Return the bytes resident before the system was prepared; 0 on a GPU.

    The smallest of a trial's rounds counts, because that of a first round may include the
    reference's results (records before December 2026).
    """
    before = data.baseline_memory_bytes
    smallest = (
        before.groupby([data.trial_id, data.group], dropna=False)
        .transform("min")
        .where(before.notna())
    )
    return smallest.where(data.device != "cuda", 0)


# Later entries use earlier ones. A quantity is NaN if one of its inputs is missing.
QUANTITIES: Mapping[str, Quantity] = {
    "throughput": lambda f: f.instances_per_s,
    "instance_s": lambda f: 1 / f.instances_per_s,
    "mini_batch_ms": lambda f: 1e3 * f.n_instances / f.n_mini_batches / f.instances_per_s,
    **{f"{phase}_ms": _to_milliseconds(f"{phase}_s") for phase in PHASES},
    # Cavs counts reading the graphs only; scheduling is included so that no system hides work.
    "graph_ms": lambda f: 1e3 * (f.construct_s + f.schedule_s.fillna(0)),
    "construction_s": lambda f: f.graph_ms / 1e3 * f.n_mini_batches / f.n_instances,
    "computation_s": lambda f: (f.instance_s - f.construction_s).clip(lower=0),
    "construction_percent": lambda f: 100 * f.construction_s / f.instance_s,
    "execution_ms": lambda f: (
        f.mini_batch_ms - 1e3 * _sum_phases(f, "construct", "schedule")
    ).clip(lower=0),
    "moving_s": lambda f: (
        f.data_movement_fraction
        * _sum_phases(f, "forward", "backward")
        * f.n_mini_batches
        / f.n_instances
    ),
    "gflop_per_s": lambda f: f.n_flop / _sum_phases(f, "forward", "backward") / 1e9,
    "gbyte_per_s": lambda f: f.bytes_touched / _sum_phases(f, "forward", "backward") / 1e9,
    "flop_per_byte": lambda f: f.n_flop / f.bytes_touched,
    "over_bound": lambda f: f.n_batches / f.lower_bound,
    "following_unseen_percent": lambda f: 100 * f.following_unseen_fraction,
    "copied_kb": lambda f: f.bytes_copied / 1024,
    "preparing_s": lambda f: f.compile_s,
    "preparing_ms": lambda f: 1e3 * f.compile_s,
    "peak_memory_mib": lambda f: (f.peak_memory_bytes - _find_memory_before(f)) / 2**20,
}
# All columns in the order of a CSV, whose options follow the first ones.
_KEYS = (
    *("kind", "system", "policy", "model", "dataset", "batch_size", "hidden_size", "mode"),
    *("device", "threads", "seed", "round", "split", "order", "embedding_size", "learning_rate"),
    *("granularity", "outputs", "offset", "graph", "mini_batch"),
)
COLUMNS = (
    *(*_KEYS, "status", "reason", "warnings", "weak_build", *RECORDED, *PHASE_SECONDS),
    *("check", "max_rel_err", *COUNTED, *QUANTITIES),
    *("trial_id", "group", "group_facts", "build", "versions", "effective_options", "cpu", "gpu"),
    *("inputs_key", "inputs_sha256", "source_sha256", "day", "started_at", "command"),
    *("block", "cpu_share", "n_turns", "n_disturbed", "turns", "passes_s"),
)
IDENTIFYING = {b"trial_id", b"instances_per_s", b"status"}  # in every table of records
PER_INSTANCE_SUFFIX = "_per_instance"  # after the name of a quantity of one mini-batch


def frame(path: Path | str, *, passes: bool = False) -> pd.DataFrame:
    """Load all records and counts of a results directory, a packed file or a reference directory.

    Only rows with status "ok" have quantities; records that contradict others get the status
    "wrong_result".

    Args:
        path: A directory of records, packed (`records.jsonl.xz`) or one file each.
        passes: Whether to add the column `passes_s`, lists of seconds.

    Raises:
        RecordError: There are no records, one is damaged, or two of one round differ.
    """
    path = Path(path)
    if not path.is_dir() and not (path.is_file() and path.suffix in (".xz", ".json")):
        problem = "is not a file of records" if path.exists() else "does not exist"
        raise RecordError(f"{path} {problem}; choose a results directory or a packed file (.xz)")
    held = read_all_records([path])
    if not held:
        nested = sorted({packed.parent.relative_to(path) for packed in path.rglob("*.jsonl.xz")})
        advice = (
            f"choose one of {', '.join(map(str, nested))} in it" if nested else "run bench first"
        )
        raise RecordError(f"no records in {path}; {advice}, or choose another directory")
    return build_frame(cross_check_records(held.records), held.counts, passes=passes)


def build_frame(
    records: Iterable[Record], counts: Iterable[AnyCount] = (), *, passes: bool = False
) -> pd.DataFrame:
    """Build the frame of counts and of records that were checked against each other."""
    rows = [build_record_row(record, passes=passes) for record in records]
    rows += [row for count in counts for row in build_count_rows(count)]
    return build_frame_from_rows(rows)


def build_frame_from_rows(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Build a frame of flat rows, with quantities; only rows with status "ok" have numbers."""
    shared = ("status", "warnings", "weak_build", "trial_id", "group", "group_facts")
    empty = dict.fromkeys(["kind", *Trial.model_fields, *shared, *MEASURED])
    data = pd.DataFrame([{**empty, **row} for row in rows] or None, columns=None)
    data = data if len(data) else pd.DataFrame(columns=list(empty))
    data[list(MEASURED)] = data[list(MEASURED)].astype(float)
    data.loc[data.status != "ok", list(MEASURED)] = np.nan
    settings = [str(name) for name in data if is_setting(name)]
    data[settings] = data[settings].convert_dtypes()  # integers stay integers next to gaps
    if {OWN_PATH, OWN_CHECKSUM} <= {*settings}:
        # The content identifies a file, however its path was written.
        own = data[data[OWN_PATH].notna()]
        data.loc[own.index, OWN_PATH] = own.groupby(OWN_CHECKSUM)[OWN_PATH].transform("first")
    numbers = data[["device", "trial_id", "group", *MEASURED]].copy()
    for name, quantity in QUANTITIES.items():
        numbers[name] = quantity(numbers).replace([np.inf, -np.inf], np.nan)
    return pd.concat([data, numbers[list(QUANTITIES)]], axis=1)


def is_setting(column: object) -> bool:
    name = str(column)
    sections = tuple(f"{section}." for section in SECTIONS)
    return name in (*Trial.model_fields, *SETTINGS) or name.startswith(sections)


def get_quantity(data: pd.DataFrame, quantity: str) -> pd.Series[float]:
    """Return a column of numbers; NAME_per_instance divides one of a mini-batch by instances."""
    name = quantity.removesuffix(PER_INSTANCE_SUFFIX)
    if name not in data or not pd.api.types.is_numeric_dtype(data[name]):
        hint = (
            "; call ratios first"
            if name == "ratio"
            else suggest_name(name, (*QUANTITIES, *MEASURED))
        )
        raise RecordError(
            f"unknown quantity {quantity!r}{hint}; choose from {', '.join(QUANTITIES)}"
        )
    if name == quantity:
        return data[name]
    return data[name] * data.n_mini_batches / data.n_instances


def build_record_row(record: Record, *, passes: bool = False) -> dict[str, Any]:
    """Flatten one record: its settings by `bench` key, its results and their provenance."""
    config = record.config
    row: dict[str, Any] = {"kind": "trial", **record.trial.model_dump()}
    row |= {key: config.get(key) for key in SETTINGS}
    for key, section in SECTIONS.items():
        for name, value in (config.get(section) or {}).items():
            row[f"{key}.{name}"] = json.dumps(value) if isinstance(value, dict | list) else value
    row |= {"status": record.status, "reason": record.reason or ""}
    row |= {"warnings": " ".join(record.warnings), "weak_build": _find_weak_build(record)}
    row |= {name: getattr(record, name) for name in RECORDED}
    row |= {f"{phase}_s": record.phases_s.get(phase) for phase in PHASES}
    row |= {"check": record.check.status if record.check else ""}
    row |= {"max_rel_err": record.check.max_rel_err if record.check else np.nan}
    row |= {"trial_id": record.trial_id, "group": hash_group(record), "build": hash_build(record)}
    row |= {"group_facts": json.dumps(collect_group_facts(record), sort_keys=True)}
    row |= {"versions": json.dumps(record.versions, sort_keys=True)}
    row |= {"effective_options": json.dumps(record.effective_options, sort_keys=True)}
    row |= {"cpu": record.machine.get("cpu") or "", "gpu": record.gpu or ""}
    row |= {"inputs_key": hash_declared_inputs(record), "inputs_sha256": record.inputs_sha256 or ""}
    row |= {"source_sha256": record.source_sha256}
    row |= {"day": record.started_at[:10], "started_at": record.started_at}
    row |= {"command": record.command}
    row |= {"block": record.block or "", "cpu_share": compute_cpu_share(record.turns)}
    row |= {"n_turns": len(record.turns), "turns": _collect_instance_seconds(record)}
    row |= {"n_disturbed": sum(turn.is_disturbed for turn in record.turns)}
    if passes:
        row |= {"passes_s": list(record.passes_s)}
    return row


def _collect_instance_seconds(record: Record) -> Seconds | None:
    """Return the seconds per instance of each turn, by cycle; None without turns."""
    if record.status != "ok" or not record.turns or not record.n_mini_batches:
        return None
    seconds = collect_turn_seconds(record.passes_s, record.turns)
    n_instances = record.n_instances or 1
    return {cycle: (pass_s / n_instances, doubt) for cycle, (pass_s, doubt) in seconds.items()}


def _find_weak_build(record: Record) -> str:
    if record.effective_options.get("instead_of"):
        return OTHER_KERNELS
    return WEAK_BUILDS.get(record.versions.get("dynet_build", "").partition(" ")[0], "")


def build_count_rows(count: AnyCount) -> list[dict[str, Any]]:
    """Flatten one count: a row for each of its two graphs, and for each mini-batch after the first.

    `mini_batch` is 0 for the mini-batch that was requested and 1, 2, ... for those that followed.
    Row 0 also has the mean of `over_bound` over those that followed.
    """
    data = ("model", "outputs", "offset", "dataset", "split", "batch_size")
    names = (*data, "policy", "granularity")
    labels: dict[str, Any] = {name: getattr(count, name) for name in names}
    labels |= {f"{MODEL_OPTION}{key}": v for key, v in (count.model_options or {}).items()}
    labels |= {"kind": "count", "round": 0, "mini_batch": 0, "warnings": "", "weak_build": ""}
    labels |= {"trial_id": count.count_id, "cpu": count.cpu, "source_sha256": count.source_sha256}
    labels |= {"started_at": count.counted_at, "day": count.counted_at[:10]}
    learning = asdict(count.learning) if count.learning else {}
    labels |= {f"learning.{name}": learning.get(name) for name in LEARNING}
    if not isinstance(count, CountRow):
        failure = {"status": count.status, "reason": count.reason}
        return [{**labels, **failure, "graph": graph} for graph in (PLAIN, RELEASED)]
    rows: list[dict[str, Any]] = []
    for graph, suffix in ((PLAIN, ""), (RELEASED, "_ed")):
        row = {**labels, "graph": graph, "n_tried": getattr(count, f"n_trials{suffix}")}
        numbers = ("n_batches", "lower_bound", "learn_s", "unseen_fraction")
        row |= {name: getattr(count, name + suffix) for name in numbers}
        row |= {"n_nodes": count.n_nodes_ed if suffix else count.n_vertices}
        row |= {"n_parameters": count.n_unbatchable_ed if suffix else 0}
        row |= {"schedule_s": None if suffix else count.schedule_s}
        row |= {"status": count.status_ed if suffix else "ok"}
        row |= {"reason": (count.reason_ed or "") if suffix else ""}
        rows += _add_following(row, count.following_ed if suffix else count.following)
    return rows


def _add_following(
    row: Mapping[str, Any], following: Generalization | None
) -> Iterator[dict[str, Any]]:
    """Yield the row of the first mini-batch, with means over those that follow, and their rows."""
    if following is None:
        yield {**row}
        return
    unseen = following.unseen_fraction
    means = {"following_over_bound": following.ratio, "following_unseen_fraction": unseen}
    yield {**row, "n_following": len(following.n_batches), **means}
    pairs = zip(following.n_batches, following.lower_bound, strict=True)
    for k, (n, bound) in enumerate(pairs, 1):
        counts = {"mini_batch": k, "n_batches": n, "lower_bound": bound}
        yield {**row, **counts, "unseen_fraction": unseen, "schedule_s": None, "learn_s": None}


def to_csv(rows: pd.DataFrame) -> str:
    """Write a frame as CSV: trials before counts, by name and round; missing values are empty.

    Columns are in the order of COLUMNS, options by name after the keys.
    """
    options = sorted(str(name) for name in rows if name not in COLUMNS)
    names = [*_KEYS, *options, *COLUMNS[len(_KEYS) :]]
    ordered = rows.sort_values(
        ["kind", "trial_id", "round"], ascending=[False, True, True], kind="stable"
    )
    present = [name for name in names if name in ordered and name != "turns"]
    return ordered[present].to_csv(index=False, lineterminator="\n")


def is_table(content: bytes) -> bool:
    """Return whether a file is a CSV of records, by the names in its first line."""
    return set(content.partition(b"\n")[0].split(b",")) >= IDENTIFYING
