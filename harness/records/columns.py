"""Columns of the tidy frame, with their units and meanings, and the frame as CSV.

docs/records.md shows this list. Options (`system.options.*`, `model.options.*`,
`dataset.options.*`, `timing.*`, `learning.*`) have a column each under their `bench` key.
"""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

IDENTIFYING = {b"trial_id", b"instances_per_s", b"status"}  # in every table of records


class Column(NamedTuple):
    """Column with its unit, which is empty for text and plain numbers, and its meaning."""

    name: str
    unit: str
    meaning: str


def _parse_columns(*lines: str) -> tuple[Column, ...]:
    return tuple(Column(*(part.strip() for part in line.split("|"))) for line in lines)


KEYS = _parse_columns(
    "kind | | `trial` or `count` (batch counts of a policy, without timing)",
    "system | | system; missing for counts",
    "policy | | batching policy; missing if it is the system's own",
    "model | | model",
    "dataset | | dataset",
    "batch_size | | instances of a mini-batch",
    "hidden_size | | hidden size",
    "mode | | `train` or `infer`",
    "device | | `cpu` or `cuda`",
    "threads | | threads of every library",
    "seed | | seed of mini-batches and weights",
    "round | | repetition; 0 for counts",
    "split | | split of the dataset",
    "order | | order of instances: `shuffled`, `length` or `file`",
    "embedding_size | | embedding size; 0: the hidden size",
    "learning_rate | | learning rate",
    "granularity | | counts only: vertices or operators",
    "outputs | | counts only: when output layers run",
    "offset | | counts only: first instance",
    "graph | | counts only: `plain`, or `released` as in ED-Batch's release",
    "mini_batch | | counts only: 0 for the mini-batch that was learned on, then 1, 2, ...",
)
STATUS = _parse_columns(
    "status | | `ok`, or the reason for no number",
    "reason | | explanation of a status other than `ok`",
    "warnings | | names of warnings, separated by spaces",
    "weak_build | | warning that every ratio against this build carries",
)
RECORDED = _parse_columns(  # numbers under the names of a record's fields
    "instances_per_s | 1/s | instances of a pass over its median time",
    "n_instances | | instances of a pass",
    "n_mini_batches | | mini-batches of a pass",
    "n_batches | | batches per mini-batch",
    "lower_bound | | least number of batches of the same graphs",
    "n_launches | | kernel calls per mini-batch",
    "n_copies | | kernel calls per mini-batch that only bring operands together",
    "bytes_copied | B | bytes that they copy per mini-batch",
    "bytes_touched | B | bytes that steps read and write per mini-batch",
    "n_flop | | floating-point operations per mini-batch",
    "data_movement_fraction | | fraction of forward and backward that only moves data",
    "n_compilations | | programs compiled before the passes",
    "compile_s | s | preparing the system, compilation included",
    "learn_s | s | learning a policy",
    "policy_search_s | s | choosing a policy, with `policy=auto`",
    "unseen_slowdown | | time of unseen mini-batches over that of timed ones",
    "peak_memory_bytes | B | peak memory of the process, or of the GPU",
    "baseline_memory_bytes | B | memory before the system is prepared",
)
PHASE_SECONDS = _parse_columns(
    "construct_s | s | building graphs, per mini-batch",
    "schedule_s | s | scheduling, per mini-batch (counts: the policy itself)",
    "forward_s | s | forward, per mini-batch",
    "backward_s | s | backward, per mini-batch",
    "update_s | s | update, per mini-batch",
)
CHECKS = _parse_columns(
    "check | | agreement with the reference: `ok`, `failed` or `skipped`",
    "max_rel_err | | largest relative deviation from the reference",
    "policy_choice | | candidates of `policy=auto` with their times (JSON)",
)
COUNTED = _parse_columns(
    "n_nodes | | counts only: nodes of the graph",
    "n_parameters | | counts only: nodes that are never batched",
    "n_tried | | counts only: schedules that learning tried",
    "unseen_fraction | | counts only: fraction of states that learning has not seen",
    "n_following | | counts only: number of mini-batches that follow",
    "following_over_bound | | counts only: mean of `over_bound` over the mini-batches that follow",
    "following_unseen_fraction | | counts only: `unseen_fraction` of the mini-batches that follow",
)
DERIVED = _parse_columns(
    "throughput | 1/s | instances per second",
    "instance_s | s | time per instance",
    "mini_batch_ms | ms | time per mini-batch",
    "construct_ms | ms | as `construct_s`",
    "schedule_ms | ms | as `schedule_s`",
    "forward_ms | ms | as `forward_s`",
    "backward_ms | ms | as `backward_s`",
    "update_ms | ms | as `update_s`",
    "graph_ms | ms | construct and schedule, per mini-batch",
    "construction_s | s | construct and schedule, per instance",
    "computation_s | s | everything else, per instance",
    "construction_percent | % | construct and schedule of the whole",
    "execution_ms | ms | time per mini-batch without construct and schedule",
    "moving_s | s | forward and backward that only move data, per instance",
    "gflop_per_s | GFLOP/s | floating-point operations of forward and backward",
    "gbyte_per_s | GB/s | bytes touched by forward and backward",
    "flop_per_byte | 1/B | floating-point operations per byte touched",
    "over_bound | | batches over their lower bound",
    "following_unseen_percent | % | as `following_unseen_fraction`",
    "copied_kb | KiB | as `bytes_copied`",
    "preparing_s | s | as `compile_s`",
    "preparing_ms | ms | as `compile_s`",
    "peak_memory_mib | MiB | peak memory; on a CPU beyond that before preparing",
)
PROVENANCE = _parse_columns(
    "trial_id | | name that all rounds of a trial share; ends in a hash of its settings",
    "group | | hash of `group_facts`; only rows of one group may share a table",
    "group_facts | | machine, threads, device and shared versions (JSON)",
    "build | | hash of versions and code; one per system and workload in a table",
    "versions | | versions of Python, libraries and compilers (JSON)",
    "effective_options | | options in effect, and libraries used (JSON)",
    "cpu | | processor",
    "gpu | | GPU that computed; empty on a CPU",
    "inputs_key | | hash of the settings that determine the mini-batches",
    "inputs_sha256 | | hash of the mini-batches; unlike ones of one `inputs_key` share no table",
    "source_sha256 | | hash of the measured code",
    "day | | day of the measurement (UTC)",
    "started_at | | start of the measurement (UTC)",
    "command | | command that measured it",
    "block | | block in which the system was measured; ratios are within its cycles",
    "cpu_share | | CPU time of the process per second of its turns",
    "n_turns | | turns without phase marks",
    "n_disturbed | | turns in which the process was kept from its CPU",
)
SAMPLES = _parse_columns(
    "turns | s | per instance, for each cycle, and whether the turn was disturbed (not in CSV)",
    "passes_s | s | with `passes=True`: times of all passes",
)
RESULTS = (*STATUS, *RECORDED, *PHASE_SECONDS, *CHECKS, *COUNTED)
COLUMNS = (*KEYS, *RESULTS, *DERIVED, *PROVENANCE, *SAMPLES)


def to_csv(rows: pd.DataFrame) -> str:
    """Write a frame as CSV: trials before counts, by name and round; missing values are empty.

    Columns are in the order of COLUMNS, options by name after the keys.
    """
    listed = {column.name for column in COLUMNS}
    options = sorted(str(name) for name in rows if name not in listed)
    names = [column.name for column in KEYS] + options
    names += [column.name for column in COLUMNS[len(KEYS) :]]
    ordered = rows.sort_values(
        ["kind", "trial_id", "round"], ascending=[False, True, True], kind="stable"
    )
    present = [name for name in names if name in ordered and name != "turns"]
    return ordered[present].to_csv(index=False, lineterminator="\n")


def is_table(content: bytes) -> bool:
    """Return whether a file is a CSV of records, by the names in its first line."""
    return set(content.partition(b"\n")[0].split(b",")) >= IDENTIFYING
