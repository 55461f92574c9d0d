"""The machine's description, what disturbs it, and what is said to people."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from harness.commands import doctor
from harness.machine import disturbance
from harness.machine.disturbance import Disturbance
from harness.machine.facts import describe_machine, has_cuda_device
from harness.machine.memory import peak_memory_bytes, reset_peak_memory
from harness.machine.quiet import judge_governor, judge_load, judge_memory, judge_swap
from harness.measuring.launch import run_worker
from harness.records.record import Record, trial_of
from harness.terminal.reporting import Reporter, outcome_words, summary, trial_words
from harness.trials.spec import TrialSpec

MakeSpec = Callable[..., TrialSpec]
MIB = 2**20


def test_the_description_is_plain_and_complete() -> None:
    machine = describe_machine()
    plain = machine.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["cpu"]
    assert plain["memory_bytes"] > 0
    assert 1 <= len(plain["usable_cpus"]) <= plain["n_cpus"]


def test_no_visible_device_is_no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert not has_cuda_device()


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux")
def test_the_peak_of_memory_is_that_since_the_reset() -> None:
    block = np.ones(64 * MIB // 8)
    assert peak_memory_bytes() >= block.nbytes
    del block
    reset_peak_memory()
    before = peak_memory_bytes()
    block = np.ones(48 * MIB // 8)
    del block
    assert 40 * MIB <= peak_memory_bytes() - before <= 60 * MIB


def fake_cpu(monkeypatch: pytest.MonkeyPatch, **readings: list[float]) -> None:
    """Let the readings of the kernel's counters follow each other."""
    for name, values in readings.items():
        source = iter(values)
        monkeypatch.setattr(disturbance, name, lambda source=source: next(source))


@pytest.mark.parametrize(
    ("all_s", "own_s", "warnings"),
    [(12.0, 2.0, ()), (12.8, 2.0, ()), (13.2, 2.0, ("busy",)), (12.0, 0.5, ("busy",))],
)
def test_work_of_others_is_told_from_our_own(
    monkeypatch: pytest.MonkeyPatch, all_s: float, own_s: float, warnings: tuple[str, ...]
) -> None:
    fake_cpu(
        monkeypatch,
        _busy_cpu_seconds=[10.0, all_s],
        _own_cpu_seconds=[0.0, own_s],
        _throttle_count=[5, 5],
    )
    monkeypatch.setattr(disturbance.time, "monotonic", iter([100.0, 102.0]).__next__)
    assert Disturbance("cpu").warnings() == warnings


def test_throttling_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cpu(
        monkeypatch,
        _busy_cpu_seconds=[0.0, 0.0],
        _own_cpu_seconds=[0.0, 0.0],
        _throttle_count=[5, 6],
    )
    assert Disturbance("cpu").warnings() == ("throttled",)


def test_findings_come_with_advice() -> None:
    machine = describe_machine()
    assert judge_load(0.1).advice == ""
    assert "end other work" in judge_load(1.0).advice
    assert judge_governor(replace(machine, governor="performance")).advice == ""
    assert "performance" in judge_governor(replace(machine, governor="powersave")).advice
    assert judge_governor(replace(machine, governor=None)).value == "unknown"
    assert judge_memory(90, 100).advice == ""
    assert judge_memory(10, 100).advice
    assert judge_swap(0).advice == ""
    assert judge_swap(2**30).advice


def test_the_doctor_says_what_runs_and_why_not(
    make_spec: MakeSpec, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = make_spec(system="good", system_options={"fault": "null"})
    skipping = make_spec(system="skipping", system_options={"fault": "skip"})
    missing = make_spec(system="missing", adapter="tests.support.fake_missing")
    broken = make_spec(system="broken", adapter="tests.conftest_that_is_not_there")
    answers = [*doctor.ask([good, skipping]), *doctor.ask([missing]), *doctor.ask([broken])]
    reasons = {answer.system: answer.reason for answer in answers}
    assert reasons["good"] is None
    assert reasons["skipping"] == "not on this machine"
    assert "a_framework_that_is_not_installed is not installed" in str(reasons["missing"])
    assert "is not a module" in str(reasons["broken"])
    monkeypatch.setattr(doctor, "ask_all", lambda: answers)
    assert doctor.main([]) == 0
    text = capsys.readouterr().out
    assert "good      cpu   runs" in text
    assert "skipping  cpu   no: not on this machine" in text
    assert doctor.main(["--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert set(content) == {"machine", "systems", "disturbance", "quiet"}


def a_record(spec: TrialSpec, **changes: Any) -> Record:
    values: dict[str, Any] = {
        "status": "ok",
        "trial": trial_of(spec),
        "trial_id": spec.trial_id,
        "instances_per_s": 812.4,
        "samples_s": (0.100, 0.200, 0.102, 0.204, 0.098, 0.196),
        "n_mini_batches": 2,
        "source_sha256": "",
        "machine": {},
        "versions": {},
        "config": {},
        "started_at": "",
        "finished_at": "",
    }
    return Record(**(values | changes))


def test_the_line_of_a_trial(make_spec: MakeSpec) -> None:
    spec = make_spec(policy="depth", hidden_size=256, batch_size=64)
    words = trial_words(trial_of(spec))
    assert words == "fake:depth tree_fc complete_trees bs=64 h=256 train cpu/1 r0"
    assert outcome_words(a_record(spec)) == "812 instances/s ±1.5%  ok"
    assert outcome_words(a_record(spec, warnings=("busy",))).endswith("ok (busy)")
    failed = a_record(spec, status="oom", reason="too big", instances_per_s=None, samples_s=())
    assert outcome_words(failed) == "oom: too big"


def test_the_summary_tells_phases_and_place(make_spec: MakeSpec, tmp_path: Any) -> None:
    record = a_record(make_spec(), phases_s={"forward": 0.0512, "update": None}, n_batches=7.5)
    text = summary(record, tmp_path / "r0.json")
    assert "3 passes over 2 mini-batches" in text
    assert "forward 51.2 ms" in text
    assert "update" not in text
    assert "7.5 batches" in text
    assert text.endswith(f"record: {tmp_path / 'r0.json'}")


def test_a_terminal_gets_a_bar_and_a_log_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with Reporter(2, console) as reporter:
        for words in ("first", "second"):
            reporter.starts(words)
            reporter.ends(f"{words} done [ok]")
    assert "[1/2] first done [ok]" in screen.getvalue()
    assert capsys.readouterr() == ("", "")
    with Reporter(1, Console(file=screen, force_terminal=False)) as reporter:
        reporter.starts("only")
        reporter.ends("only done")
    assert capsys.readouterr().err == "[1/1] only done\n"


def test_nothing_is_drawn_while_a_worker_runs(make_spec: MakeSpec, tmp_path: Any) -> None:
    screen = io.StringIO()
    with Reporter(2, Console(file=screen, force_terminal=True, width=100)) as reporter:
        reporter.starts("a trial")
        before = screen.getvalue()
        run_worker(make_spec(), tmp_path / "r0.json", tmp_path / "r0.log")
        assert screen.getvalue() == before
        reporter.ends("a trial")
        assert screen.getvalue() != before
