"""Batch counts as values, and as JSON: a row per policy and mini-batch, or why there is none."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from harness.contracts.policy import LearningSettings
from harness.errors import RecordError
from harness.machine.files import read_regular
from harness.records.files import replace_whole, write_whole
from harness.records.record import LIMITED, TRIED_AGAIN
from harness.trials.spec import Limits
from harness.values.nested import flatten

T = TypeVar("T")
Failure = Literal["oom", "timeout", "crash", "unsupported", "wrong_result", "bad_data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generalisation:
    """Counts by mini-batch.

    ratio: mean over mini-batches of batches to the bound.
    unseen_share: of all decisions, in states that learning never met; None for a policy that is not
        learned.
    """

    n_batches: tuple[int, ...]
    lower_bound: tuple[int, ...]
    ratio: float
    unseen_share: float | None = None


@dataclass(frozen=True, kw_only=True)
class BatchCounts:
    """One policy's counts; those ending in _ed are of the graph that ED-Batch's release counts.

    n_unbatchable_ed: its vertices that are a batch each under every policy (parameters).
    schedule_s: median over repeated calls on the graph itself, warm-up apart.
    learn_s: seconds of learning, n_trials: schedules tried, unseen_share: share of decisions in
        states that learning never met; None where a policy is not learned (learn_s: not here).
    following: counts on the mini-batches that follow; None where these were not asked for.
    reason_ed: why the policy has no batches of that graph; None where it has.
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
    unseen_share: float | None = None
    learn_s_ed: float | None = None
    n_trials_ed: int | None = None
    unseen_share_ed: float | None = None
    following: Generalisation | None = None
    following_ed: Generalisation | None = None
    reason_ed: str | None = None

    @property
    def ratio(self) -> float:
        """Batches to the bound."""
        return self.n_batches / self.lower_bound

    @property
    def status_ed(self) -> str:
        """The word for batches of the released graph: "ok", or "unsupported" by this policy."""
        return "ok" if self.n_batches_ed is not None else "unsupported"

    @property
    def ratio_ed(self) -> float | None:
        """Batches of the released graph to its bound; None where there are none."""
        return None if self.n_batches_ed is None else self.n_batches_ed / self.lower_bound_ed


@dataclass(frozen=True, kw_only=True)
class CountLabels:
    """Which policy on which mini-batch, and what became of it.

    learning: of a learned policy, the settings. cpu: on which seconds were measured.
    count_id: text that ends in a hash of all that was asked for. source_sha256: of the code.
    own_data_sha256: of instances from files without checksums, which settings do not determine.
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
    learning: LearningSettings | None = None
    cpu: str
    count_id: str
    source_sha256: str
    own_data_sha256: str | None = None
    counted_at: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without those that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def answers(
        self, count_id: str, source_sha256: str, own_data_sha256: str | None, limits: Limits
    ) -> bool:
        """Return whether this makes counting (again) unnecessary; see Record.answers."""
        asked_for = (count_id, source_sha256, own_data_sha256)
        same = (self.count_id, self.source_sha256, self.own_data_sha256) == asked_for
        return same and self.status not in TRIED_AGAIN


@dataclass(frozen=True, kw_only=True)
class CountRow(BatchCounts, CountLabels):
    """The counts of one policy on one mini-batch."""

    status: Literal["ok"] = "ok"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without those that are None, and the ratios to the bounds."""
        ratios = {"ratio": self.ratio, "ratio_ed": self.ratio_ed}
        return super().to_dict() | {k: v for k, v in ratios.items() if v is not None}


@dataclass(frozen=True, kw_only=True)
class FailedCount(CountLabels):
    """Why a policy has no counts on one mini-batch, in one line, and under which limits."""

    status: Failure
    reason: str
    limits: Limits

    def answers(
        self, count_id: str, source_sha256: str, own_data_sha256: str | None, limits: Limits
    ) -> bool:
        """Return whether another attempt would end alike."""
        alike = self.status not in LIMITED or self.limits == limits
        return alike and super().answers(count_id, source_sha256, own_data_sha256, limits)


AnyCount = CountRow | FailedCount
_Either = Annotated[AnyCount, Field(discriminator="status")]
_ONE: TypeAdapter[AnyCount] = TypeAdapter(_Either)
_ROWS: TypeAdapter[tuple[AnyCount, ...]] = TypeAdapter(tuple[_Either, ...])
CSV_COLUMNS = {b"count_id", b"source_sha256"}  # among others


def read_count_rows(path: Path) -> tuple[AnyCount, ...]:
    """Read and validate one file; raises RecordError naming the file and the first fault."""
    return _read(path, _ROWS)


def read_count(path: Path) -> AnyCount:
    """Read and validate the record of one count; raises RecordError naming the file and fault."""
    return _read(path, _ONE)


def find_count(path: Path) -> AnyCount | None:
    """Return the record of one count, or None where there is none that can be read."""
    try:
        return read_count(path)
    except RecordError:
        return None


def parse_count(text: bytes) -> AnyCount:
    """Validate the record of one count; raises pydantic's ValidationError."""
    return _ONE.validate_json(text)


def _read(path: Path, kind: TypeAdapter[T]) -> T:
    try:
        return kind.validate_json(read_regular(path))
    except OSError as error:
        raise RecordError(f"{path} cannot be read ({error.strerror}); count again") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise RecordError(
            f"{path} holds no batch counts: {where}: {first['msg']}; delete it and count again"
        ) from error


def write_count_rows(path: Path, rows: Sequence[AnyCount]) -> None:
    """Write rows, as CSV where the file's name says so, else as a JSON list; whole or not at all.

    Raises OutputError where that cannot be done.
    """
    values = [row.to_dict() for row in rows]
    replace_whole(path, _csv(values) if path.suffix == ".csv" else _json(values))


def are_count_rows(content: bytes) -> bool:
    """Whether the content of a file is rows, as CSV or JSON."""
    if set(content.partition(b"\n")[0].split(b",")) >= CSV_COLUMNS:
        return True
    try:
        _ROWS.validate_json(content)
    except ValidationError:
        return False
    return True


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line a row; what is nested has names with dots."""
    flat = [dict(flatten(row)) for row in rows]
    text = StringIO()
    columns = dict.fromkeys(name for row in flat for name in row)
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def write_count(path: Path, row: AnyCount) -> None:
    """Write the record of one count; what was there moves to superseded/ beside it."""
    write_whole(path, _json(row.to_dict()))


def _json(value: Mapping[str, Any] | list[dict[str, Any]]) -> str:
    return json.dumps(value, indent=1) + "\n"
