"""Choices of a trial's CPU, time limit and last mini-batch, from the command line to the record."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynbatch.harness.commands import bench
from dynbatch.harness.machine.facts import list_usable_cpus
from dynbatch.harness.records.record import read_record
from tests.support.processes import run_python
from tests.support.refusals import read_refusal

OWN = "(3 (2 a) (2 b))\n(1 c)\n(3 (1 a) (2 (1 b) (1 c)))\n"


def test_a_trial_runs_pinned_without_time_limit_and_with_a_partial_mini_batch(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.txt"
    file.write_text(OWN)
    cpu = list_usable_cpus()[-1]
    typed = ["system=null", "dataset=trees", f"dataset.path={file}", "batch_size=2", f"cpu={cpu}"]
    typed += ["limits.time_s=null", "timing.last=keep", "timing.min_seconds=0.05"]
    typed += [f"results_dir={tmp_path / 'results'}"]
    run_python("-m", bench.__name__, *typed)  # in its own process, whose CPUs it may restrict
    (record,) = map(read_record, (tmp_path / "results").rglob("r0.json"))
    assert list(record.machine["usable_cpus"]) == [cpu]
    assert record.config["limits"]["time_s"] is None
    assert (record.n_mini_batches, record.n_instances) == (2, 3)
    run_python("-m", bench.__name__, *typed)
    (again,) = map(read_record, (tmp_path / "results").rglob("r0.json"))
    assert again.started_at == record.started_at  # the pinned CPUs are the same: not measured again


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        (["cpu=60000"], "cpu=60000 is not allowed: expected 1 of the usable CPUs"),
        (["-m", "cpu=0", "threads=1,2"], "threads=1,2, but cpu sets the CPUs of all trials"),
        (["-m", "cpu=0,1"], "cpu=0,1, but cpu sets the CPUs of all trials"),
        (["cpu=-1"], "cpu=-1 is not allowed"),
        (["timing.last=half"], "timing.last=half is not allowed"),
    ],
)
def test_a_wrong_choice_is_one_line(
    typed: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["dataset=sst_synthetic", "system=null", f"results_dir={tmp_path}"]
    assert bench.main([*base, *typed]) == 1
    read_refusal(capsys, reason)
