"""`bench-collect --pack` and `--unpack`: unpacked results are usable like the original ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import dynbatch.harness.terminal.measurement
from dynbatch.harness.commands import bench, collect, schedule
from dynbatch.harness.counts import sequential
from dynbatch.harness.records.store import COUNTS, TRIALS
from tests.support.records import content_of, plain_count, plain_record, write_results
from tests.support.refusals import read_refusal
from tests.support.sandbox import COUNT, N_ROWS, TINY

pytestmark = pytest.mark.slow  # together they take seconds

Output = pytest.CaptureFixture[str]
SWEEP = ("-m", "system=reference,null", "rounds=2", *TINY)


def run(*arguments: object) -> int:
    return collect.main([str(one) for one in arguments])


def test_records_are_reused_after_packing_and_unpacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    here, packed, there = tmp_path / "here", tmp_path / "packed", tmp_path / "there"
    assert bench.main([*SWEEP, f"results_dir={here}"]) == 0
    assert schedule.main([*COUNT, f"records={here}/raw/counts"]) == 0
    assert run(here / "raw", "--pack", packed) == 0
    assert sorted(content_of(packed)) == [COUNTS.packed, TRIALS.packed]
    assert run(packed, "--unpack", there) == 0
    assert content_of(there / "raw").keys() == content_of(here / "raw").keys()
    capsys.readouterr()

    before = content_of(there / "raw")
    monkeypatch.setattr(dynbatch.harness.terminal.measurement, "measure_block", None)
    assert bench.main([*SWEEP, f"results_dir={there}"]) == 0
    assert capsys.readouterr().out == "4 records: 4 ok; 4 reused\n"
    monkeypatch.setattr(sequential, "run_counts", None)
    assert schedule.main([*COUNT, f"records={there}/raw/counts"]) == 0
    assert capsys.readouterr().err == f"{N_ROWS} records: {N_ROWS} ok; {N_ROWS} reused\n"
    assert content_of(there / "raw") == before


def test_packing_again_changes_nothing(tmp_path: Path, capsys: Output) -> None:
    write_results(tmp_path, [plain_record(r) for r in range(3)], [plain_count()])
    assert run(tmp_path / "raw", "--pack", tmp_path / "a") == 0
    assert "3 records and 1 counts packed" in capsys.readouterr().err
    first = content_of(tmp_path / "a")
    assert run(tmp_path / "a", "--pack", tmp_path / "a") == 0
    assert content_of(tmp_path / "a") == first
    for name in (TRIALS.packed, COUNTS.packed):
        assert run(tmp_path / "a" / name, "--unpack", tmp_path / "b") == 0
    assert run(tmp_path / "b" / "raw", "--pack", tmp_path / "c") == 0
    assert content_of(tmp_path / "c") == first


def test_a_packed_file_is_a_place_like_any_other(tmp_path: Path, capsys: Output) -> None:
    write_results(tmp_path, [plain_record(r) for r in range(3)], [plain_count()])
    assert run(tmp_path / "raw") == 0
    table = capsys.readouterr().out
    assert table.count("\n") == 7  # a header, three rounds, and a count of three rows
    assert run(tmp_path / "raw", "--pack", tmp_path / "packed") == 0
    capsys.readouterr()
    assert run(tmp_path / "packed") == 0
    assert capsys.readouterr().out == table
    assert run(tmp_path / "packed" / TRIALS.packed) == 0
    assert capsys.readouterr().out.count("\n") == 4
    assert run(tmp_path / "packed", tmp_path / "raw") == 0
    assert capsys.readouterr().out == table


def test_pack_latest_packs_only_the_newest_build(tmp_path: Path) -> None:
    changes = {"source_sha256": "b" * 64, "started_at": "2026-02-01T00:00:00+00:00"}
    newer = plain_record(changes=changes, hidden_size=16)
    write_results(tmp_path, [plain_record(), newer], [])
    assert run(tmp_path / "raw", "--pack", tmp_path / "packed") == 1
    assert not (tmp_path / "packed").exists()
    assert run(tmp_path / "raw", "--pack", tmp_path / "packed", "--latest") == 0
    assert run(tmp_path / "packed", "--unpack", tmp_path / "there") == 0
    assert list(content_of(tmp_path / "there")) == [f"raw/{newer.trial_id}/r0.json"]


def test_impossible_request_gives_one_line(tmp_path: Path, capsys: Output) -> None:
    write_results(tmp_path, [plain_record()], [plain_count()])
    raw, packed, other = tmp_path / "raw", tmp_path / "packed", tmp_path / "other"
    assert run(raw, "--pack", packed) == 0
    assert run(raw, "--pack", other) == 0
    write_results(tmp_path / "only", [plain_record()], [])
    write_results(other, [plain_record(changes={"instances_per_s": 1.0})], [])
    capsys.readouterr()
    before = content_of(tmp_path)
    for arguments, words in (
        ((tmp_path / "only", "--pack", packed), "has none of its kind; delete it"),
        ((raw, other / "raw", "--pack", packed), "two different records of fake-"),
        ((tmp_path / "nothing", "--pack", packed), "cannot be read"),
        ((tmp_path / "nothing.xz", "--unpack", other), "cannot be read"),
        (("--unpack", other), "choose a packed file"),
        ((packed, "--unpack", other), "r0.json exists with other content"),
        ((raw, "--pack", packed, "--out", tmp_path / "a.csv"), "--out excludes --pack"),
        ((packed, "--unpack", other, "--latest"), "--unpack excludes --latest"),
        ((packed, "--unpack", other, "--pack", other), "not allowed with"),
        (("--colour",), "--colour"),
        ((raw, "--pack", raw / "counts" / "count-a.json"), "cannot be written"),
    ):
        assert run(*arguments) == 1, arguments
        read_refusal(capsys, "bench-collect: ", words)
        assert content_of(tmp_path) == before
