"""From raw records to one tidy table: a row per trial and round, with what may share a column."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from io import StringIO
from typing import Any, get_args

from harness.contracts.system import Phase
from harness.records.comparable import build_of, group_of
from harness.records.record import Record
from harness.records.stats import relative_spread, round_warnings

Row = dict[str, Any]
OURS = {b"trial_id", b"instances_per_s", b"inputs_sha256"}  # columns, among others


def to_rows(records: Sequence[Record]) -> list[Row]:
    """Turn records into rows ordered by trial and round."""
    n_rounds: dict[str, int] = {}
    for record in records:
        n_rounds[record.trial_id] = n_rounds.get(record.trial_id, 0) + (record.status == "ok")
    rows = [to_row(record, n_rounds[record.trial_id]) for record in records]
    return sorted(rows, key=lambda row: (row["trial_id"], row["round"]))


def to_row(record: Record, n_rounds: int) -> Row:
    """Flatten one record; n_rounds counts its trial's rounds that ended well."""
    config, n_mini = record.config, record.n_mini_batches
    row: Row = {"group": group_of(record), "build": build_of(record), "trial_id": record.trial_id}
    row |= record.trial.model_dump()
    row |= {name: config.get(name) for name in ("split", "embedding_size")}
    row |= {"status": record.status, "reason": record.reason}
    row |= {"instances_per_s": record.instances_per_s if record.status == "ok" else None}
    row |= {f"{phase}_s": record.phases_s.get(phase) for phase in get_args(Phase)}
    prepared = ("learn_s", "compile_s", "n_compilations")
    counted = (
        *prepared,
        "n_batches",
        "lower_bound",
        "n_launches",
        "bytes_copied",
        "n_copies",
        "moving_share",
    )
    memory = ("peak_memory_bytes", "baseline_memory_bytes")
    row |= {name: getattr(record, name) for name in (*counted, *memory)}
    row |= {"n_mini_batches": n_mini, "n_instances": record.n_instances}
    ok = record.status == "ok" and n_mini
    row["relative_spread"] = relative_spread(record.samples_s, n_mini) if ok and n_mini else None
    row["check"] = record.check.status if record.check else None
    row["max_rel_err"] = record.check.max_rel_err if record.check else None
    doubts = (*record.warnings, *round_warnings(n_rounds)) if ok else record.warnings
    row["warnings"] = " ".join(doubts)
    row["inputs_sha256"] = record.inputs_sha256
    row["options"] = json.dumps(_options(record), sort_keys=True)
    row["in_force"] = json.dumps(record.in_force, sort_keys=True)
    row["versions"] = json.dumps(record.versions, sort_keys=True)
    return row | {"cpu": record.machine.get("cpu"), "started_at": record.started_at}


def _options(record: Record) -> dict[str, Any]:
    names = ("system_options", "model_options", "dataset_options", "timing", "learning_rate")
    return {name: record.config.get(name) for name in names}


def is_table(content: bytes) -> bool:
    """Whether the content of a file is such a CSV: its first line names our columns."""
    return set(content.partition(b"\n")[0].split(b",")) >= OURS


def to_csv(rows: Sequence[Row]) -> str:
    """Write rows as CSV; what is unknown stays empty."""
    text = StringIO()
    if rows:
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()
