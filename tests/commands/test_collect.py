"""`bench-collect`: records and counts as rows of one CSV file, or one line with the reason."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import dynbatch
from dynbatch.harness.commands import collect
from dynbatch.harness.records.record import locate_record, write_record
from tests.support.measured import MakeSpec
from tests.support.records import MakeRecord, plain_count, plain_record, write_results
from tests.support.refusals import read_refusal

Output = pytest.CaptureFixture[str]


def test_collect_refuses_in_one_line(
    make_record: MakeRecord, make_spec: MakeSpec, tmp_path: Path, capsys: Output
) -> None:
    assert collect.main([str(tmp_path)]) == 1
    read_refusal(capsys, "no records in")
    write_record(locate_record(tmp_path, make_spec()), make_record())
    newer = make_spec(hidden_size=12)
    write_record(locate_record(tmp_path, newer), make_record(newer, source_sha256="b" * 64))
    assert collect.main([str(tmp_path), "--out", str(tmp_path / "x.csv")]) == 1
    read_refusal(capsys, "two builds")
    assert not (tmp_path / "x.csv").exists()
    assert collect.main([str(tmp_path), "--latest"]) == 0


def test_the_csv_is_the_frame_with_trials_before_counts(tmp_path: Path, capsys: Output) -> None:
    reason = 'killed, "hard"'
    failed = plain_record(2, {"status": "oom", "reason": reason, "passes_s": ()})
    write_results(tmp_path, [failed, plain_record(1), plain_record(0)], [plain_count()])
    out = tmp_path / "all.csv"
    assert collect.main([str(tmp_path / "raw"), "--out", str(out)]) == 0
    assert capsys.readouterr() == ("", "")
    written, loaded = pd.read_csv(out), dynbatch.frame(tmp_path / "raw")
    assert set(written) == set(loaded) - {"turns"}, "a mapping is no text"
    assert list(written.kind.drop_duplicates()) == ["trial", "count"]
    assert len(written) == len(loaded)
    assert list(written[written.kind == "trial"]["round"]) == [0, 1, 2]
    assert list(written.reason.dropna()) == [reason]
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
    capsys.readouterr()
    assert collect.main([str(tmp_path / "raw"), "--out", str(out)]) == 1
    assert out.read_text() == "system,value\n"
    read_refusal(capsys, "is not a table of records")
