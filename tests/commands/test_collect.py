"""`bench-collect`: records and counts as rows of one CSV file, or one line with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import dynbatch
from dynbatch.harness.commands import collect
from dynbatch.harness.records.record import Record, locate_record, write_record
from dynbatch.harness.trials.spec import TrialSpec
from tests.support.records import plain_count, plain_record, write_results

MakeRecord = Callable[..., Record]
MakeSpec = Callable[..., TrialSpec]
Output = pytest.CaptureFixture[str]


def test_collect_writes_a_row_per_round(
    make_record: MakeRecord, make_spec: MakeSpec, tmp_path: Path, capsys: Output
) -> None:
    raw = tmp_path / "raw"
    for round_ in range(3):
        spec = make_spec(round=round_)
        write_record(locate_record(tmp_path, spec), make_record(spec))
        write_record(locate_record(tmp_path, spec), make_record(spec))  # supersedes the first
    lonely = make_spec(hidden_size=12)
    write_record(
        locate_record(tmp_path, lonely), make_record(lonely, warnings=("background_load",))
    )
    failed = make_spec(hidden_size=16)
    reason = 'killed, "hard"'
    write_record(locate_record(tmp_path, failed), make_record(failed, status="oom", reason=reason))
    out = tmp_path / "all.csv"
    assert collect.main([str(raw), "--out", str(out)]) == 0
    rows = pd.read_csv(out)
    assert len(rows) == 5
    keys = list(zip(rows.trial_id, rows["round"], strict=True))
    assert sorted(keys) == keys
    assert rows.throughput.notna().sum() == 4
    oom = rows[rows.status == "oom"].iloc[0]
    assert oom.reason == reason
    assert pd.isna(oom.instances_per_s)
    assert list(rows.warnings.dropna()) == ["background_load"]
    assert capsys.readouterr() == ("", "")


def test_collect_refuses_in_one_line(
    make_record: MakeRecord, make_spec: MakeSpec, tmp_path: Path, capsys: Output
) -> None:
    assert collect.main([str(tmp_path)]) == 1
    assert "no records in" in capsys.readouterr().err
    write_record(locate_record(tmp_path, make_spec()), make_record())
    newer = make_spec(hidden_size=12)
    write_record(locate_record(tmp_path, newer), make_record(newer, source_sha256="b" * 64))
    assert collect.main([str(tmp_path), "--out", str(tmp_path / "x.csv")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "two builds" in error
    assert not (tmp_path / "x.csv").exists()
    assert collect.main([str(tmp_path), "--latest"]) == 0


def test_the_csv_is_the_frame_with_trials_before_counts(tmp_path: Path) -> None:
    write_results(tmp_path, [plain_record(r) for r in range(2)], [plain_count()])
    out = tmp_path / "all.csv"
    assert collect.main([str(tmp_path / "raw"), "--out", str(out)]) == 0
    written, loaded = pd.read_csv(out), dynbatch.frame(tmp_path / "raw")
    assert set(written) == set(loaded) - {"turns"}, "a mapping is no text"
    assert list(written.kind.drop_duplicates()) == ["trial", "count"]
    assert len(written) == len(loaded)
    for name in ("throughput", "over_bound", "n_nodes"):
        assert written[name].sum() == pytest.approx(loaded[name].sum())


def test_out_takes_the_place_of_a_table_of_records_only(tmp_path: Path, capsys: Output) -> None:
    write_results(tmp_path, [plain_record()], [])
    out = tmp_path / "all.csv"
    for content in ("group,build,trial_id,status,instances_per_s\n", ""):
        out.write_text(content)
        assert collect.main([str(tmp_path / "raw"), "--out", str(out)]) == 0
    assert collect.main([str(tmp_path / "raw"), "--out", str(out)]) == 0
    out.write_text("system,value\n")
    assert collect.main([str(tmp_path / "raw"), "--out", str(out)]) == 1
    assert "is not a table of records" in capsys.readouterr().err
    assert out.read_text() == "system,value\n"
