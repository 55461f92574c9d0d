"""Findings become a record in one place: nothing found is lost, nothing else is made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, fields

import pytest

from harness.contracts.choice import Candidate, Choice
from harness.measuring.findings import Findings, record_of
from harness.measuring.passes import MeanCounters
from harness.records.fingerprint import Fingerprint
from harness.records.record import CheckVerdict, Record
from harness.trials.spec import TrialSpec

MakeSpec = Callable[..., TrialSpec]

# Of a record: what every trial has, whatever was found out about it.
GIVEN = {
    *("schema_version", "trial", "trial_id", "source_sha256", "machine", "versions", "config"),
    "gpu",
    *("started_at", "finished_at", "command"),
}
FULL = Findings(
    status="wrong_result",
    reason="for a reason",
    inputs_sha256="c" * 64,
    n_mini_batches=2,
    n_instances=8,
    baseline_memory_bytes=100,
    peak_memory_bytes=200,
    gpu_clocks_mhz=(1980, 1755),
    core_rate_per_s=900.0,
    compile_s=0.25,
    learn_s=0.5,
    choose_s=0.75,
    choice=Choice(
        candidates=(Candidate(policy="agenda", granularity="vertex", tried_s=0.5),),
        n_mini_batches=1,
        n_tries=3,
    ),
    check=CheckVerdict(status="ok", max_rel_err=1e-6),
    between_s=0.125,
    unseen_ratio=1.25,
    fingerprint=Fingerprint(workload="w", losses=(1.0,), sketches={}),
    counters=MeanCounters(
        n_batches=1.0,
        n_launches=2.0,
        bytes_copied=3.0,
        n_copies=4.0,
        lower_bound=0.5,
        n_flop=5.0,
        bytes_touched=6.0,
    ),
    n_compilations=3,
    moving_share=0.25,
    n_warmup=4,
    empty_sample_s=1e-7,
    samples_s=(0.5, 1.5),
    marked_samples_s=(0.75, 1.75),
    instances_per_s=4.0,
    phases_s={
        "construct": 0.1,
        "schedule": 0.2,
        "forward": 0.3,
        "backward": 0.4,
        "update": None,
    },
    warnings=("busy",),
    in_force={"backend": "some"},
)


def made(make_spec: MakeSpec, findings: Findings) -> Record:
    spec = make_spec(round=3, command="bench some=thing")
    return record_of(spec, findings, {"fake": "1.0"}, "2026-01-01T00:00:00+00:00")


def test_every_finding_reaches_the_record(make_spec: MakeSpec) -> None:
    unset = Findings()
    same = [x.name for x in fields(FULL) if getattr(FULL, x.name) == getattr(unset, x.name)]
    assert same == ["pid"], "these findings are not told apart from those of a trial that died"
    found = (
        asdict(FULL)
        | {"check": FULL.check, "fingerprint": FULL.fingerprint, "choice": FULL.choice}
        | asdict(FULL.counters)
    )
    del found["counters"], found["pid"]  # who found them is no finding
    record = made(make_spec, FULL)
    assert set(Record.model_fields) == GIVEN | set(found)
    assert {name: getattr(record, name) for name in found} == found


def test_a_record_knows_its_trial_machine_and_times(make_spec: MakeSpec) -> None:
    record = made(make_spec, Findings(status="oom"))
    assert (record.trial.round, record.command) == (3, "bench some=thing")
    assert record.trial_id == make_spec().trial_id
    assert record.config == make_spec(round=3, command="bench some=thing").to_dict()
    assert (record.versions, record.machine["n_cpus"] >= 1) == ({"fake": "1.0"}, True)
    assert record.started_at == "2026-01-01T00:00:00+00:00" < record.finished_at


def test_of_a_trial_that_died_nothing_is_made_up(make_spec: MakeSpec) -> None:
    findings = Findings()
    findings.end("crash", "over\n  two lines")
    content = json.loads(made(make_spec, findings).model_dump_json(exclude_defaults=True))
    assert set(content) == GIVEN - {"schema_version", "gpu"} | {"status", "reason"}
    assert (content["status"], content["reason"]) == ("crash", "over two lines")


def test_a_finding_that_no_record_has_is_refused() -> None:
    with pytest.raises(AttributeError):
        Findings().compile_seconds = 1.0  # type: ignore[attr-defined]
