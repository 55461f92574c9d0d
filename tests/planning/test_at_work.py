"""Status of active jobs, with a warning for jobs beyond their time limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.job_specs import FILE, RunPlan
from dynbatch.harness.terminal.status import (
    AtWork,
    Notice,
    forget_all,
    format_status,
    read_current_work,
    tell_status,
)

Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def test_job_publishes_current_work_until_it_ends(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "bench1")
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    notice = Notice(tmp_path)
    notice.show_work("waits", 1.0)
    notice.show_work("tree_lstm", 60.0)
    (found,) = read_current_work(tmp_path)
    assert (found.node, found.job, found.what, found.at_most_s) == ("bench1", "12", "tree_lstm", 60)
    notice.take_down()
    assert not list(read_current_work(tmp_path))
    notice.show_work("again", 1.0)
    forget_all(tmp_path)
    assert not list(read_current_work(tmp_path))


def test_the_status_of_a_run_is_a_line_for_each_job(tmp_path: Path) -> None:
    done, left = tmp_path / "done", tmp_path / "left"
    done.touch()
    plan = RunPlan(started=1000.0, until=None, seconds={str(done): 10.0, str(left): 10.0})
    working = [
        AtWork("bench1", "12", "tree_lstm", since=1000.0, at_most_s=60.0),
        AtWork("bench2", "13", "tree_gru", since=900.0, at_most_s=60.0),
    ]
    first, *others = format_status(plan, working, now=1030.0)
    assert first.startswith("1 of 2 steps of the run started ")
    assert others == [
        "bench1  job 12  tree_lstm, for 30 s",
        "bench2  job 13  tree_gru, for 2 min: its node may be dead",
    ]
    assert list(format_status(plan, [], now=1030.0))[1].startswith("no job is active on a node")


def test_a_folder_without_a_run_is_one_line(tmp_path: Path, capsys: Output) -> None:
    with pytest.raises(ConfigError, match="no pipeline run found in"):
        tell_status([tmp_path])
    RunPlan(1000.0, None, {}).write(tmp_path / FILE)
    tell_status([tmp_path])
    assert "0 of 0 steps" in capsys.readouterr().out
