"""Record of one round of a trial: the only source of every table and figure.

Versions of the schema: 1, the first; 2, other names of statuses, warnings, fields and options; 3,
times of passes instead of mini-batches. Only version 3 can be read: the committed records were
converted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dynbatch.harness.contracts.system import PHASES, Phase
from dynbatch.harness.errors import RecordError
from dynbatch.harness.machine.facts import describe_machine, find_used_gpu
from dynbatch.harness.machine.files import read_regular
from dynbatch.harness.records.files import write_whole
from dynbatch.harness.records.fingerprint import Fingerprint
from dynbatch.harness.records.turns import Turn, collect_turn_seconds, compute_pass_s
from dynbatch.harness.trials.sources import SourceHashes
from dynbatch.harness.trials.spec import TrialSpec

T = TypeVar("T")
SCHEMA_VERSION = 3
Status = Literal[
    "ok",
    "oom",
    "timeout",
    "crash",
    "unsupported",
    "wrong_result",
    "invalid_data",
    "machine_mismatch",
]

# Nothing was measured, and the cause (a killed process, a missing framework, a file) may be fixed.
TRIED_AGAIN = frozenset({"crash", "unsupported", "invalid_data", "machine_mismatch"})
LIMITED = frozenset({"oom", "timeout"})
# Fields that records until December 2026 have, mostly null: the search of policy=auto, which chose
# a policy by timing several. Other unknown fields are refused.
_DELETED_FIELDS = frozenset({"policy_choice", "policy_search_s"})
SAME = 1e-6  # relative tolerance: another version of NumPy may round a throughput differently


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Trial(_Frozen):
    """System, point and round of a record."""

    system: str
    policy: str | None
    model: str
    dataset: str
    batch_size: int
    hidden_size: int
    mode: Literal["train", "infer"]
    device: Literal["cpu", "cuda"]
    threads: int
    seed: int
    round: int


def make_empty_phases() -> dict[Phase, float | None]:
    return dict.fromkeys(PHASES)


class CheckVerdict(_Frozen):
    """Agreement with the float64 reference; skipped only for a system without arithmetic.

    Attributes:
        in_round: Round whose worker checked the system, if not this one's: the first.
        max_rel_err: Largest deviation of a checked array, relative to that array's largest entry.
    """

    status: Literal["ok", "failed", "skipped"]
    max_rel_err: float | None = None
    in_round: int | None = None


class Measured(BaseModel):
    """Results of one round of a trial so far; after an error, the earlier results remain.

    All times are in seconds. Counts and bytes are means per mini-batch, and null if a system does
    not report them.

    Attributes:
        instances_per_s: Throughput of the median turn that counts.
        phases_s: Median per mini-batch of each phase in marked passes; null if the system cannot
            separate a phase.
        compile_s: Time of `prepare` and of compiling for mini-batches' shapes before the passes.
        n_compilations: Number of programs traced or compiled, and of captured CUDA graphs, without
            those of the check; null if a system does not compile for shapes.
        timer_overhead_s: Time that the clock shows for an empty run.
        passes_s: Times of unmarked passes, each the sum of the runs of n_mini_batches, in order.
            Early records have passes with phase marks here.
        n_copies: Launches that only make operands contiguous.
        lower_bound: Number of batches that no policy can undercut on the same graphs.
        bytes_touched: Bytes that forward and backward read and write, regardless of caches.
        data_movement_fraction: Fraction of forward and backward that only moves data, if the trial
            was configured to measure it; the times then include that measurement.
        untimed_gap_s: Median time between two timed runs, mostly in `load`; not part of passes_s.
        unseen_slowdown: Slowdown of unseen mini-batches relative to the timed ones.
        core_rate_per_s: Rate of a fixed piece of work on a core, in records from before blocks.
        block: Block in which the round was measured; rounds of one block share cycles.
        turns: Turns of unmarked passes, in order of time; their passes are those of passes_s.
        effective_options: Options including defaults, and the backend and libraries used.
        gpu_limited_s: Seconds during the passes for which heat or power limited the GPU's clock
            rate, by cause; null if its driver does not count them.
        gpu_others: Number of processes outside of the block that computed on the GPU before and
            after the passes; null if its driver does not report them.
    """

    model_config = ConfigDict(extra="forbid")

    status: Status = "ok"
    reason: str | None = None
    instances_per_s: float | None = None
    phases_s: dict[Phase, float | None] = Field(default_factory=make_empty_phases)
    learn_s: float | None = None
    compile_s: float | None = None
    n_compilations: int | None = None
    n_warmup: int | None = None
    timer_overhead_s: float | None = None
    passes_s: tuple[float, ...] = ()
    n_mini_batches: int | None = None
    n_instances: int | None = None
    n_batches: float | None = None
    n_launches: float | None = None
    bytes_copied: float | None = None
    n_copies: float | None = None
    lower_bound: float | None = None
    n_flop: float | None = None
    bytes_touched: float | None = None
    data_movement_fraction: float | None = None
    peak_memory_bytes: int | None = None
    baseline_memory_bytes: int | None = None  # resident after all imports, before `prepare`
    check: CheckVerdict | None = None
    untimed_gap_s: float | None = None
    unseen_slowdown: float | None = None
    fingerprint: Fingerprint | None = None
    warnings: tuple[str, ...] = ()
    inputs_sha256: str | None = None
    effective_options: dict[str, str] = Field(default_factory=dict)
    gpu_clocks_mhz: tuple[int | None, int | None] | None = None  # before and after the passes
    gpu_limited_s: dict[str, float] | None = None
    gpu_others: tuple[int | None, int | None] | None = None
    core_rate_per_s: float | None = None
    block: str | None = None
    turns: tuple[Turn, ...] = ()

    def reject(self, fault: str) -> None:
        """End as a wrong result, without the times of passes that turned out to be invalid."""
        self.passes_s, self.turns = (), ()
        self.instances_per_s, self.phases_s = None, make_empty_phases()
        self.end("wrong_result", fault)

    def end(self, status: Status, reason: str) -> None:
        """Set the final status and its reason, which is joined to one line."""
        self.status, self.reason = status, " ".join(reason.split())


class Record(Measured):
    """Record of one round: results, trial, machine, versions, code and time of measurement.

    Raises:
        ValueError: The fields contradict each other, which means that the record was edited or
            damaged.
    """

    model_config = ConfigDict(frozen=True)

    schema_version: Literal[3] = 3
    status: Status  # required of a record
    trial: Trial
    trial_id: str
    source_sha256: str
    machine: dict[str, Any]
    gpu: str | None = None  # name of the GPU that was used
    versions: dict[str, str]
    config: dict[str, Any]
    started_at: str
    finished_at: str
    command: str = ""

    @model_validator(mode="before")
    @classmethod
    def _drop_deleted_fields(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if name not in _DELETED_FIELDS}

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        for x in self.passes_s:
            if not (math.isfinite(x) and x >= 0):
                raise ValueError(f"passes_s has {x!r}: expected finite seconds of at least 0")
        for name, value in self.trial.model_dump().items():
            if self.config.get(name, value) != value:
                raise ValueError(
                    f"trial.{name} is {value!r}, but config.{name} is {self.config[name]!r}"
                )
        if self.status == "ok":
            if self.check and self.check.status == "failed":
                raise ValueError("status is ok, but the check failed")
            self._check_times()
        return self

    def _check_times(self) -> None:
        if not self.passes_s:
            raise ValueError("status is ok, but passes_s is empty")
        if not self.n_mini_batches or not self.n_instances:
            raise ValueError("passes_s is set, but n_mini_batches or n_instances is missing")
        computed = compute_throughput(self)
        recorded = self.instances_per_s
        if recorded == computed or (
            recorded and computed and math.isclose(recorded, computed, rel_tol=SAME)
        ):
            return
        raise ValueError(f"instances_per_s is {recorded}: expected {computed} from passes_s")

    def is_valid_for(self, spec: TrialSpec, source_sha256: str) -> bool:
        """Return whether this record makes measuring `spec` unnecessary.

        It does if trial, round, interpreter and measured code are the same, unless nothing was
        measured or the limits of a trial that exceeded one have changed.
        """
        same = (self.trial_id, self.trial.round, self.source_sha256) == (
            spec.trial_id,
            spec.round,
            source_sha256,
        )
        if self.config.get("python") != spec.python:
            return False  # measured in another environment, with other versions
        if not same or self.status in TRIED_AGAIN:
            return False
        return self.status not in LIMITED or self.config.get("limits") == spec.to_dict()["limits"]


def compute_throughput(measured: Measured) -> float | None:
    """Return the instances per second of the median turn; None if the clock did not advance."""
    if measured.n_instances is None:
        return None
    median_s = compute_pass_s(collect_turn_seconds(measured.passes_s, measured.turns))
    return measured.n_instances / median_s if median_s > 0 else None


def build_record(
    spec: TrialSpec,
    measured: Measured,
    versions: dict[str, str],
    started_at: str,
    sources: SourceHashes | None = None,
) -> Record:
    """Build the record of a round that ends now on this machine.

    Args:
        started_at: Result of `format_now` at the start.
    """
    return Record(
        **dict(measured),
        trial=build_trial(spec),
        trial_id=spec.trial_id,
        source_sha256=(sources or SourceHashes()).hash_trial(spec),
        machine=describe_machine().to_dict(),
        gpu=find_used_gpu() if spec.device == "cuda" else None,
        versions=versions,
        config=spec.to_dict(),
        started_at=started_at,
        finished_at=format_now(),
        command=spec.command,
    )


def build_trial(spec: TrialSpec) -> Trial:
    return Trial(**{name: getattr(spec, name) for name in Trial.model_fields})


def locate_record(results_dir: Path, spec: TrialSpec) -> Path:
    return build_record_path(results_dir, spec.trial_id, spec.round)


def build_record_path(results_dir: Path, trial_id: str, round_: int | str) -> Path:
    """Return the path of a record by trial id and round; the pipeline passes wildcards."""
    return results_dir / "raw" / trial_id / f"r{round_}.json"


def read_record(path: Path) -> Record:
    kind = f"a record of schema {SCHEMA_VERSION}"
    return read_valid(path, Record.model_validate_json, kind, "measure")


def read_valid(path: Path, parse: Callable[[bytes], T], kind: str, repeat: str) -> T:
    """Read and validate a file of records.

    Args:
        kind: Description of the content, for messages.
        repeat: Verb of what replaces an invalid file.
    """
    try:
        return parse(read_regular(path))
    except OSError as error:
        raise RecordError(f"{path} cannot be read ({error.strerror}); {repeat} again") from error
    except ValidationError as error:
        fault = describe_first_fault(error)
        raise RecordError(f"{path} is not {kind}: {fault}; delete it and {repeat} again") from error


def describe_first_fault(error: ValidationError) -> str:
    """Return the path and message of the first validation error in one line."""
    first = error.errors()[0]
    message = first["msg"].removeprefix("Value error, ")
    return f"{'.'.join(map(str, first['loc']))}: {message}" if first["loc"] else message


def is_record(content: bytes) -> bool:
    try:
        Record.model_validate_json(content)
    except ValidationError:
        return False
    return True


def find_record(path: Path) -> Record | None:
    """Return the record at `path`, or None if it is missing or unreadable."""
    try:
        return read_record(path)
    except RecordError:
        return None


def write_record(path: Path, record: Record) -> None:
    """Write a record; an existing one moves to superseded/ next to it."""
    write_whole(path, record.model_dump_json(indent=1) + "\n")


def format_now() -> str:
    """Return the current date and time in UTC, in ISO format."""
    return datetime.now(UTC).isoformat(timespec="seconds")
