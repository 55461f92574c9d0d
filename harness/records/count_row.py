"""Batch counts as values and as JSON: a row per policy and mini-batch, or a failure's reason."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from dynbatch.harness.contracts.policy import LearningSettings
from dynbatch.harness.errors import RecordError
from dynbatch.harness.records.files import replace_whole, write_whole
from dynbatch.harness.records.record import read_valid
from dynbatch.harness.trials.spec import Limits
from dynbatch.harness.values.nested import flatten

Failure = Literal["oom", "timeout", "crash", "unsupported", "wrong_result", "invalid_data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generalization:
    """Counts of the mini-batches that follow the first one.

    Attributes:
        n_batches: Batches of each mini-batch, as for lower_bound.
        ratio: Mean over mini-batches of batches divided by their lower bound.
        unseen_fraction: Fraction of decisions in states not seen in learning; None for
            a policy that is not learned.
    """

    n_batches: tuple[int, ...]
    lower_bound: tuple[int, ...]
    ratio: float
    unseen_fraction: float | None = None


@dataclass(frozen=True, kw_only=True)
class BatchCounts:
    """Counts of one policy on one mini-batch.

    Fields that end in _ed belong to the graph that ED-Batch's released code builds.

    Attributes:
        n_unbatchable_ed: Vertices that are a batch each under every policy (parameters).
        schedule_s: Median seconds of repeated calls on the graph itself, without warm-up.
        learn_s: Seconds of learning; None if the policy was not learned in this count.
        n_trials: Schedules tried in learning; None if the policy is not learned.
        unseen_fraction: Fraction of decisions in states that did not occur during learning; None if
            the policy is not learned.
        following: Counts of the mini-batches that follow; None if they were not requested.
        reason_ed: Reason why the policy has no batches of the released graph, or None.
    """

    n_vertices: int
    n_batches: int
    lower_bound: int
    n_nodes_ed: int
    n_batches_ed: int | None = None
    lower_bound_ed: int
    n_unbatchable_ed: int
    schedule_s: float
    learn_s: float | None = None
    n_trials: int | None = None
    unseen_fraction: float | None = None
    learn_s_ed: float | None = None
    n_trials_ed: int | None = None
    unseen_fraction_ed: float | None = None
    following: Generalization | None = None
    following_ed: Generalization | None = None
    reason_ed: str | None = None

    @property
    def ratio(self) -> float:
        return self.n_batches / self.lower_bound

    @property
    def status_ed(self) -> str:
        """Status of the released graph: "ok", or "unsupported" by this policy."""
        return "ok" if self.n_batches_ed is not None else "unsupported"

    @property
    def ratio_ed(self) -> float | None:
        """Batches of the released graph divided by their lower bound; None without batches."""
        return None if self.n_batches_ed is None else self.n_batches_ed / self.lower_bound_ed


@dataclass(frozen=True, kw_only=True)
class CountLabels:
    """Policy and mini-batch of a count, and its status.

    Attributes:
        model_options: Options of the model; None in old records, which do not have them.
        learning: Settings of a learned policy.
        cpu: Processor on which seconds were measured.
        count_id: Text that ends in a hash of all settings.
        source_sha256: Hash of the code.
        own_data_sha256: Hash of instances from files without checksums, which settings do not
            determine.
    """

    status: str
    model: str
    dataset: str
    split: str
    batch_size: int
    granularity: str
    outputs: str
    offset: int
    policy: str
    model_options: Mapping[str, Any] | None = None
    learning: LearningSettings | None = None
    cpu: str
    count_id: str
    source_sha256: str
    own_data_sha256: str | None = None
    counted_at: str

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class CountRow(BatchCounts, CountLabels):
    """Row with the counts of one policy on one mini-batch."""

    status: Literal["ok"] = "ok"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, without those that are None, and the ratios to the bounds."""
        ratios = {"ratio": self.ratio, "ratio_ed": self.ratio_ed}
        return super().to_dict() | {k: v for k, v in ratios.items() if v is not None}


@dataclass(frozen=True, kw_only=True)
class FailedCount(CountLabels):
    """Failed count of a policy on one mini-batch, with a one-line reason and its limits."""

    status: Failure
    reason: str
    limits: Limits


AnyCount = CountRow | FailedCount
_Either = Annotated[AnyCount, Field(discriminator="status")]
_ONE: TypeAdapter[AnyCount] = TypeAdapter(_Either)
_ROWS: TypeAdapter[tuple[AnyCount, ...]] = TypeAdapter(tuple[_Either, ...])
CSV_COLUMNS = {b"count_id", b"source_sha256"}  # among others


def read_count_rows(path: Path) -> tuple[AnyCount, ...]:
    return read_valid(path, _ROWS.validate_json, "a list of counts", "count")


def read_count(path: Path) -> AnyCount:
    return read_valid(path, parse_count, "a count", "count")


def find_count(path: Path) -> AnyCount | None:
    try:
        return read_count(path)
    except RecordError:
        return None


def parse_count(text: bytes) -> AnyCount:
    """Parse and validate the record of one count.

    Raises:
        pydantic.ValidationError: The record is invalid.
    """
    return _ONE.validate_json(text)


def write_count_rows(path: Path, rows: Sequence[AnyCount]) -> None:
    """Write rows atomically, as CSV if the suffix is .csv, otherwise as a JSON list."""
    values = [row.to_dict() for row in rows]
    replace_whole(path, _format_csv(values) if path.suffix == ".csv" else _format_json(values))


def are_count_rows(content: bytes) -> bool:
    """Return whether the content of a file is rows of counts, as CSV or JSON."""
    if set(content.partition(b"\n")[0].split(b",")) >= CSV_COLUMNS:
        return True
    try:
        _ROWS.validate_json(content)
    except ValidationError:
        return False
    return True


def _format_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one CSV line per row; nested values have names with dots."""
    flat = [dict(flatten(row)) for row in rows]
    text = StringIO()
    columns = dict.fromkeys(name for row in flat for name in row)
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def write_count(path: Path, row: AnyCount) -> None:
    """Write the record of one count; an existing file moves to superseded/ next to it."""
    write_whole(path, _format_json(row.to_dict()))


def _format_json(value: Mapping[str, Any] | list[dict[str, Any]]) -> str:
    return json.dumps(value, indent=1) + "\n"
