"""What is found out about a trial, and the one place that makes a record of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.contracts.choice import Choice
from harness.contracts.system import Phase
from harness.machine.facts import describe_machine, used_gpu
from harness.measuring.passes import MeanCounters
from harness.records.fingerprint import Fingerprint
from harness.records.record import CheckVerdict, Record, Status, no_phases, now_text, trial_of
from harness.trials.sources import source_sha256
from harness.trials.spec import TrialSpec


@dataclass(slots=True)
class Findings:
    """What is known about a trial's round so far; a fault keeps what was found before it.

    Fields mean what they mean in Record; what was not found out keeps its default. pid: of the
    process that began.
    """

    status: Status = "ok"
    reason: str | None = None
    inputs_sha256: str | None = None
    n_mini_batches: int | None = None
    n_instances: int | None = None
    baseline_memory_bytes: int | None = None
    peak_memory_bytes: int | None = None
    gpu_clocks_mhz: tuple[int | None, int | None] | None = None
    core_rate_per_s: float | None = None
    compile_s: float | None = None
    n_compilations: int | None = None
    learn_s: float | None = None
    choose_s: float | None = None
    choice: Choice | None = None
    check: CheckVerdict | None = None
    between_s: float | None = None
    unseen_ratio: float | None = None
    fingerprint: Fingerprint | None = None
    moving_share: float | None = None
    counters: MeanCounters = field(default_factory=MeanCounters)
    n_warmup: int | None = None
    empty_sample_s: float | None = None
    samples_s: tuple[float, ...] = ()
    marked_samples_s: tuple[float, ...] = ()
    instances_per_s: float | None = None
    phases_s: dict[Phase, float | None] = field(default_factory=no_phases)
    warnings: tuple[str, ...] = ()
    in_force: Mapping[str, str] = field(default_factory=dict)
    pid: int = field(default_factory=os.getpid)

    def take_times_back(self) -> None:
        """Forget what was timed, as it was not what it seemed."""
        self.samples_s, self.instances_per_s, self.phases_s = (), None, no_phases()

    def end(self, status: Status, reason: str) -> None:
        """Settle the status; the reason becomes one line."""
        self.status, self.reason = status, " ".join(reason.split())


def record_of(
    spec: TrialSpec, findings: Findings, versions: dict[str, str], started_at: str
) -> Record:
    """Make the record of a trial's round that ends now, on this machine.

    started_at: as `now_text` gives it.
    """
    return Record(
        status=findings.status,
        reason=findings.reason,
        trial=trial_of(spec),
        trial_id=spec.trial_id,
        instances_per_s=findings.instances_per_s,
        phases_s=findings.phases_s,
        learn_s=findings.learn_s,
        choose_s=findings.choose_s,
        choice=findings.choice,
        compile_s=findings.compile_s,
        n_compilations=findings.n_compilations,
        n_warmup=findings.n_warmup,
        empty_sample_s=findings.empty_sample_s,
        samples_s=findings.samples_s,
        marked_samples_s=findings.marked_samples_s,
        n_mini_batches=findings.n_mini_batches,
        n_instances=findings.n_instances,
        n_batches=findings.counters.n_batches,
        n_launches=findings.counters.n_launches,
        bytes_copied=findings.counters.bytes_copied,
        n_copies=findings.counters.n_copies,
        lower_bound=findings.counters.lower_bound,
        n_flop=findings.counters.n_flop,
        bytes_touched=findings.counters.bytes_touched,
        moving_share=findings.moving_share,
        peak_memory_bytes=findings.peak_memory_bytes,
        baseline_memory_bytes=findings.baseline_memory_bytes,
        check=findings.check,
        between_s=findings.between_s,
        unseen_ratio=findings.unseen_ratio,
        fingerprint=findings.fingerprint,
        warnings=findings.warnings,
        in_force=dict(findings.in_force),
        inputs_sha256=findings.inputs_sha256,
        source_sha256=source_sha256(spec),
        machine=describe_machine().to_dict(),
        gpu=used_gpu() if spec.device == "cuda" else None,
        gpu_clocks_mhz=findings.gpu_clocks_mhz,
        core_rate_per_s=findings.core_rate_per_s,
        versions=versions,
        config=spec.to_dict(),
        started_at=started_at,
        finished_at=now_text(),
        command=spec.command,
    )
