"""Batch counts as `bench-schedule out=FILE` writes them: a row per policy and mini-batch."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from harness.errors import RecordError


class Following(BaseModel):
    """Counts on the mini-batches behind the first; ratio: mean of batches to the bound."""

    model_config = ConfigDict(frozen=True)

    n_batches: tuple[int, ...]
    lower_bound: tuple[int, ...]
    ratio: float
    unseen_share: float | None = None


class Learning(BaseModel):
    """How a learned policy was learned; see harness/policies/learning.py."""

    model_config = ConfigDict(frozen=True)

    variant: str
    fallback: str
    trials: int
    seed: int


class CountRow(BaseModel):
    """One policy on one mini-batch; see harness.counting.BatchCounts for the counts.

    Fields ending in _ed count the graph of ED-Batch's release; n_unbatchable_ed of its vertices
    are parameters, each a batch by itself under every policy. cpu: on which seconds were measured.
    """

    model_config = ConfigDict(frozen=True)

    model: str
    dataset: str
    split: str
    batch_size: int
    granularity: str
    outputs: str
    offset: int
    policy: str
    n_vertices: int
    n_batches: int
    lower_bound: int
    n_nodes_ed: int
    n_batches_ed: int
    lower_bound_ed: int
    n_unbatchable_ed: int | None = None
    schedule_s: float
    learn_s: float | None = None
    learn_s_ed: float | None = None
    n_trials: int | None = None
    n_trials_ed: int | None = None
    unseen_share: float | None = None
    unseen_share_ed: float | None = None
    following: Following | None = None
    following_ed: Following | None = None
    learning: Learning | None = None
    cpu: str | None = None


_ROWS = TypeAdapter(tuple[CountRow, ...])


def read_count_rows(path: Path) -> tuple[CountRow, ...]:
    """Read and validate one file; raises RecordError naming the file and the first fault."""
    try:
        return _ROWS.validate_json(path.read_bytes())
    except OSError as error:
        raise RecordError(f"{path} cannot be read ({error.strerror}); count again") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise RecordError(
            f"{path} holds no batch counts: {where}: {first['msg']}; delete it and count again"
        ) from error
