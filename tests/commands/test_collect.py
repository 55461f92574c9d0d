"""`bench-collect`: records as rows of one CSV file, or one line that says why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.commands import collect
from harness.records.record import Record, record_path, write_record
from harness.trials.spec import TrialSpec

MakeRecord = Callable[..., Record]


def test_collect_writes_a_row_per_round(
    make_record: MakeRecord,
    make_spec: Callable[..., TrialSpec],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    raw = tmp_path / "raw"
    for round_ in range(3):
        spec = make_spec(round=round_)
        write_record(record_path(tmp_path, spec), make_record(spec))
        write_record(record_path(tmp_path, spec), make_record(spec))  # one goes to superseded/
    lonely = make_spec(hidden_size=12)
    write_record(record_path(tmp_path, lonely), make_record(lonely, warnings=("busy",)))
    failed = make_spec(hidden_size=16)
    reason = 'killed, "hard"'
    write_record(record_path(tmp_path, failed), make_record(failed, status="oom", reason=reason))
    out = tmp_path / "all.csv"
    assert collect.main([str(raw), "--out", str(out)]) == 0
    header, *rows = out.read_text().splitlines()
    assert len(rows) == 5
    assert header.startswith("group,build,trial_id,system,policy,model,dataset,batch_size")
    assert sum("busy few_rounds" in row for row in rows) == 1
    assert sum("few_rounds" in row for row in rows) == 1
    assert sum('"killed, ""hard"""' in row for row in rows) == 1
    assert capsys.readouterr() == ("", "")


def test_collect_refuses_in_one_line(
    make_record: MakeRecord,
    make_spec: Callable[..., TrialSpec],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert collect.main([str(tmp_path)]) == 1
    assert "no records in" in capsys.readouterr().err
    write_record(record_path(tmp_path, make_spec()), make_record())
    newer = make_spec(hidden_size=12)
    write_record(record_path(tmp_path, newer), make_record(newer, source_sha256="b" * 64))
    assert collect.main([str(tmp_path), "--out", str(tmp_path / "x.csv")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "two builds" in error
    assert not (tmp_path / "x.csv").exists()
    assert collect.main([str(tmp_path), "--latest"]) == 0
