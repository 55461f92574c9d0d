"""The record: what a trial's round leaves behind, the only source of every table and plot.

Versions of the schema: 1, the first.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.contracts.choice import Choice
from harness.contracts.system import PHASES, Phase
from harness.errors import RecordError
from harness.machine.facts import describe_machine, used_gpu
from harness.machine.files import read_regular
from harness.records.files import write_whole
from harness.records.fingerprint import Fingerprint
from harness.records.stats import passes_of
from harness.trials.sources import source_sha256
from harness.trials.spec import TrialSpec

SCHEMA_VERSION = 1
Status = Literal[
    "ok",
    "oom",
    "timeout",
    "crash",
    "unsupported",
    "wrong_result",
    "bad_data",
    "other_machine",
    "called_off",
]
STATUSES = get_args(Status)

# Nothing was measured, and the cause (a killed process, a missing framework, a file) may be gone.
TRIED_AGAIN = frozenset({"crash", "unsupported", "bad_data", "other_machine"})
LIMITED = frozenset({"oom", "timeout"})
SAME = 1e-6  # relative: a speed that another version of NumPy computes anew from the samples


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Trial(_Frozen):
    """The point that was measured."""

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


def no_phases() -> dict[Phase, float | None]:
    """Return every phase, told of none."""
    return dict.fromkeys(PHASES)


class CheckVerdict(_Frozen):
    """Agreement with the float64 oracle; skipped only for a system that does no arithmetic.

    max_rel_err: largest deviation of any checked array, relative to that array's largest entry.
    """

    status: Literal["ok", "failed", "skipped"]
    max_rel_err: float | None = None


class Measured(BaseModel):
    """What is known of a trial's round so far; a fault keeps what was found before it.

    Seconds everywhere; samples_s has one entry per timed mini-batch.

    phases_s: medians per mini-batch of runs with a mark behind each phase; null where the system
    cannot tell a phase apart.
    choose_s, choice: with policy=auto, how long it took to choose, what was chosen, and of what.
    compile_s: of `prepare`, and of what mini-batches' shapes made the system compile before passes.
    n_compilations: programs traced or compiled; null where a system compiles none for shapes.
    n_warmup: passes before the timed ones. empty_sample_s: what the clock shows of doing nothing.
    samples_s: pass after pass over the n_mini_batches of the fixed list, phases not marked; the
    speed is of these. marked_samples_s: of the passes that marked phases, which took turns with
    them. Records of before both were kept have marked passes alone, in samples_s.
    n_batches, n_launches, bytes_copied, n_copies: means per mini-batch; null where a system cannot
    tell. n_copies: those of the launches that only bring operands together. lower_bound: batches
    that no policy gets below on those graphs, counted as n_batches are.
    n_flop, bytes_touched: means per mini-batch, of forward and backward: floating-point operations,
    and bytes that steps read and write, whatever a cache saves of them.
    moving_share: of forward and backward, what only moved data, where a trial was run to tell it;
    its times then include the counting.
    between_s: median seconds between two timed runs, in `load` above all; not in samples_s.
    unseen_ratio: of the time of mini-batches that it had not seen to that of the timed ones.
    fingerprint: what was computed of the timed mini-batches, in a few numbers.
    core_rate_per_s: of a fixed piece of work on a core, between the timed passes.
    in_force: options as the system honoured them, said or not, and the way it took (backend,
    libraries).
    """

    model_config = ConfigDict(extra="forbid")

    status: Status = "ok"
    reason: str | None = None
    instances_per_s: float | None = None
    phases_s: dict[Phase, float | None] = Field(default_factory=no_phases)
    learn_s: float | None = None
    choose_s: float | None = None
    choice: Choice | None = None
    compile_s: float | None = None
    n_compilations: int | None = None
    n_warmup: int | None = None
    empty_sample_s: float | None = None
    samples_s: tuple[float, ...] = ()
    marked_samples_s: tuple[float, ...] = ()
    n_mini_batches: int | None = None
    n_instances: int | None = None
    n_batches: float | None = None
    n_launches: float | None = None
    bytes_copied: float | None = None
    n_copies: float | None = None
    lower_bound: float | None = None
    n_flop: float | None = None
    bytes_touched: float | None = None
    moving_share: float | None = None
    peak_memory_bytes: int | None = None
    baseline_memory_bytes: int | None = None  # resident once all is imported, before `prepare`
    check: CheckVerdict | None = None
    between_s: float | None = None
    unseen_ratio: float | None = None
    fingerprint: Fingerprint | None = None
    warnings: tuple[str, ...] = ()
    inputs_sha256: str | None = None
    in_force: dict[str, str] = Field(default_factory=dict)
    gpu_clocks_mhz: tuple[int | None, int | None] | None = None  # before and behind the passes
    core_rate_per_s: float | None = None

    def take_times_back(self) -> None:
        """Forget what was timed, as it was not what it seemed."""
        self.samples_s, self.instances_per_s, self.phases_s = (), None, no_phases()

    def end(self, status: Status, reason: str) -> None:
        """Settle the status; the reason becomes one line."""
        self.status, self.reason = status, " ".join(reason.split())


class Record(Measured):
    """One trial's round: what was measured, and of what, where, when and with which code.

    Raises ValueError for what a worker never writes: the marks of an edit by hand, or of damage.
    """

    model_config = ConfigDict(frozen=True)

    schema_version: Literal[1] = 1
    status: Status  # required of a record
    trial: Trial
    trial_id: str
    source_sha256: str
    machine: dict[str, Any]
    gpu: str | None = None  # the one that computed, of those that the machine has
    versions: dict[str, str]
    config: dict[str, Any]
    started_at: str
    finished_at: str
    command: str = ""

    @model_validator(mode="after")
    def _is_of_one_piece(self) -> Self:
        for name in ("samples_s", "marked_samples_s"):
            for x in getattr(self, name):
                if not (math.isfinite(x) and x >= 0):
                    raise ValueError(f"{name} has {x!r}, which is no time")
        for name, value in self.trial.model_dump().items():
            if self.config.get(name, value) != value:
                raise ValueError(
                    f"trial.{name} is {value!r}, and config.{name} {self.config[name]!r}"
                )
        if self.status == "ok":
            if self.check and self.check.status == "failed":
                raise ValueError("status is ok, and check failed")
            self._check_times()
        return self

    def _check_times(self) -> None:
        if not self.samples_s:
            raise ValueError("status is ok, and samples_s is empty")
        if self.n_mini_batches is None or self.n_instances is None:
            raise ValueError("samples_s are told, and n_mini_batches or n_instances is not")
        totals = sorted(passes_of(self.samples_s, self.n_mini_batches).sum(axis=1))
        median = (totals[len(totals) // 2] + totals[~(len(totals) // 2)]) / 2
        said = self.instances_per_s
        found = self.n_instances / median if median > 0 else None
        if said == found or (said and found and math.isclose(said, found, rel_tol=SAME)):
            return
        raise ValueError(f"instances_per_s is {said}, and samples_s make it {found}")

    def answers(self, spec: TrialSpec, source_sha256: str) -> bool:
        """Return whether this record makes measuring `spec` (again) unnecessary.

        It does when trial, round and measured code are the same, unless nothing was measured or
        a limit that ended the trial has been changed since.
        """
        same = (self.trial_id, self.trial.round, self.source_sha256) == (
            spec.trial_id,
            spec.round,
            source_sha256,
        )
        if self.config.get("python") != spec.python:
            return False  # of another environment, with other versions
        if not same or self.status in TRIED_AGAIN:
            return False
        return self.status not in LIMITED or self.config.get("limits") == spec.to_dict()["limits"]


def build_record(
    spec: TrialSpec, measured: Measured, versions: dict[str, str], started_at: str
) -> Record:
    """Make the record of a trial's round that ends now, on this machine.

    started_at: as `now_text` gives it.
    """
    return Record(
        **dict(measured),
        trial=trial_of(spec),
        trial_id=spec.trial_id,
        source_sha256=source_sha256(spec),
        machine=describe_machine().to_dict(),
        gpu=used_gpu() if spec.device == "cuda" else None,
        versions=versions,
        config=spec.to_dict(),
        started_at=started_at,
        finished_at=now_text(),
        command=spec.command,
    )


def trial_of(spec: TrialSpec) -> Trial:
    """Return the fields of a trial that every reader needs."""
    return Trial(**{name: getattr(spec, name) for name in Trial.model_fields})


def record_path(results_dir: Path, spec: TrialSpec) -> Path:
    """Where the record of a trial's round goes unless `out` says otherwise."""
    return path_of(results_dir, spec.trial_id, spec.round)


def path_of(results_dir: Path, trial_id: str, round_: int | str) -> Path:
    """Where the record of a trial with that name goes; the pipeline gives wildcards for both."""
    return results_dir / "raw" / trial_id / f"r{round_}.json"


def read_record(path: Path) -> Record:
    """Read and validate one record; raises RecordError naming the file and the first fault."""
    try:
        return Record.model_validate_json(read_regular(path))
    except OSError as error:
        raise RecordError(f"{path} cannot be read ({error.strerror}); measure it again") from error
    except ValidationError as error:
        message = f"{path} is not a record of schema {SCHEMA_VERSION}: {first_fault(error)}"
        raise RecordError(f"{message}; delete it and measure again") from error


def first_fault(error: ValidationError) -> str:
    """Where a value is wrong, and in which way, in one line."""
    first = error.errors()[0]
    words = first["msg"].removeprefix("Value error, ")
    return f"{'.'.join(map(str, first['loc']))}: {words}" if first["loc"] else words


def is_record(content: bytes) -> bool:
    """Whether the content of a file is a record."""
    try:
        Record.model_validate_json(content)
    except ValidationError:
        return False
    return True


def find_record(path: Path) -> Record | None:
    """Return the record at `path`, or None where there is none that can be read."""
    try:
        return read_record(path)
    except RecordError:
        return None


def write_record(path: Path, record: Record) -> None:
    """Write a record; one that was there and no longer answers moves to superseded/ beside it.

    Raises OutputError where that cannot be done.
    """
    write_whole(path, record.model_dump_json(indent=1) + "\n")


def now_text() -> str:
    """The time of day in UTC, for people."""
    return datetime.now(UTC).isoformat(timespec="seconds")
