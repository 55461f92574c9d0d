"""`bench-collect`: records and counts as one CSV file, packed, unpacked, or refused in one line.

`bench-compare`: the same trials of two results directories.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dynbatch
from dynbatch.harness.commands import bench, collect, schedule
from dynbatch.harness.commands.compare import main
from dynbatch.harness.counts import sequential
from dynbatch.harness.records.record import locate_record, write_record
from dynbatch.harness.records.store import COUNTS, TRIALS
from dynbatch.harness.terminal import measurement
from tests.support.measured import MakeSpec
from tests.support.records import MakeRecord, content_of, plain_count, plain_record, write_results
from tests.support.refusals import Output, read_refusal
from tests.support.sandbox import COUNT, N_ROWS, TINY

SWEEP = ("-m", "system=reference,null", "rounds=2", *TINY)


def run(*arguments: object) -> int:
    return collect.main([str(one) for one in arguments])


def test_collect_refuses_in_one_line(
    make_record: MakeRecord, make_spec: MakeSpec, tmp_path: Path, capsys: Output
) -> None:
    assert run(tmp_path) == 1
    read_refusal(capsys, "no records in")
    write_record(locate_record(tmp_path, make_spec()), make_record())
    newer = make_spec(hidden_size=12)
    write_record(locate_record(tmp_path, newer), make_record(newer, source_sha256="b" * 64))
    assert run(tmp_path, "--out", tmp_path / "x.csv") == 1
    read_refusal(capsys, "two builds")
    assert not (tmp_path / "x.csv").exists()
    assert run(tmp_path, "--latest") == 0


def test_the_csv_is_the_frame_with_trials_before_counts(tmp_path: Path, capsys: Output) -> None:
    reason = 'killed, "hard"'
    failed = plain_record(2, {"status": "oom", "reason": reason, "passes_s": ()})
    write_results(tmp_path, [failed, plain_record(1), plain_record(0)], [plain_count()])
    out = tmp_path / "all.csv"
    (tmp_path / "none").mkdir()
    assert run(tmp_path / "raw", "--out", out, tmp_path / "none") == 0
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
        assert run(tmp_path / "raw", "--out", out) == 0
    assert run(tmp_path / "raw", "--out", out) == 0
    out.write_text("system,value\n")
    capsys.readouterr()
    assert run(tmp_path / "raw", "--out", out) == 1
    assert out.read_text() == "system,value\n"
    read_refusal(capsys, "is not a table of records")


@pytest.mark.slow
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
    monkeypatch.setattr(measurement, "measure_block", None)
    assert bench.main([*SWEEP, f"results_dir={there}"]) == 0
    assert capsys.readouterr().out == "4 records: 4 ok; 4 reused\n"
    monkeypatch.setattr(sequential, "run_counts", None)
    assert schedule.main([*COUNT, f"records={there}/raw/counts"]) == 0
    assert capsys.readouterr().err == f"{N_ROWS} records: {N_ROWS} ok; {N_ROWS} reused\n"
    assert content_of(there / "raw") == before


def test_packed_files_are_a_place_like_any_other(tmp_path: Path, capsys: Output) -> None:
    """They give the same table, and packing them again changes nothing."""
    write_results(tmp_path, [plain_record(r) for r in range(3)], [plain_count()])
    raw, packed = tmp_path / "raw", tmp_path / "packed"
    assert run(raw) == 0
    table = capsys.readouterr().out
    assert table.count("\n") == 7  # a header, three rounds, and a count of three rows
    assert run(raw, "--pack", packed) == 0
    assert "3 records and 1 counts packed" in capsys.readouterr().err
    first = content_of(packed)
    assert run(packed, "--pack", packed) == 0
    assert content_of(packed) == first
    for places in ((packed,), (packed, raw)):
        capsys.readouterr()
        assert run(*places) == 0
        assert capsys.readouterr().out == table
    assert run(packed / TRIALS.packed) == 0
    assert capsys.readouterr().out.count("\n") == 4


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
        (("--status", "--latest"), "--status takes only RESULTS"),
        (("--status", "a", "b"), "one results directory"),
        (("--status", "nowhere"), "cannot be read"),
        (("--colour",), "--colour"),
        ((raw, "--pack", raw / "counts" / "count-a.json"), "cannot be written"),
    ):
        assert run(*arguments) == 1, arguments
        read_refusal(capsys, "bench-collect: ", words)
        assert content_of(tmp_path) == before


# --- comparison ---


def compare(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def write_rounds(folder: Path, seconds: tuple[float, ...], **changes: Any) -> Path:
    """Write a round of each number of seconds; `changes` apply to records."""
    rounds = enumerate(seconds)
    records = [plain_record(k, {"passes_s": (pass_s,)} | changes) for k, pass_s in rounds]
    write_results(folder, records, [])
    return folder


@pytest.mark.parametrize(
    ("factors", "verdict", "code"),
    [
        ((1.0, 1.0, 1.0), "1.00 (1.00 to 1.00) alike", 0),
        ((1.02, 0.99, 1.03), "alike", 0),
        ((2.0, 2.5, 4.0), "0.40 (0.25 to 0.50)\N{DAGGER} slower", 3),
        ((2.0, 1.0, 2.0), "unclear", 0),  # the interval contains 1
        ((0.5, 0.4, 0.5), "faster", 0),
        ((1.1,), "0.91 unclear", 0),  # without an interval
        ((2.0,), "0.50 slower", 3),
    ],
)
def test_a_slower_trial_fails_the_comparison(
    factors: tuple[float, ...], verdict: str, code: int, tmp_path: Path, capsys: Output
) -> None:
    before = write_rounds(tmp_path / "before", (1.0,) * len(factors))
    after = write_rounds(tmp_path / "after", factors)
    assert compare(before, after) == code
    printed = " ".join(capsys.readouterr().out.split())
    assert verdict in printed
    assert f"1 trials compared, {int(code == 3)} slower or failed" in printed
    assert compare(before, after, "--tolerance", 0.9) == 0


def test_a_trial_that_fails_now_fails_the_comparison(tmp_path: Path, capsys: Output) -> None:
    before = write_rounds(tmp_path / "before", (1.0,))
    after = write_rounds(tmp_path / "after", (1.0,), status="timeout", reason="too long")
    assert compare(before, after) == 3
    assert "timeout failed" in " ".join(capsys.readouterr().out.split())


def test_other_code_is_comparable_but_no_other_machine(tmp_path: Path, capsys: Output) -> None:
    versions = plain_record().versions
    before = write_rounds(tmp_path / "before", (1.0,))
    newer = write_rounds(tmp_path / "newer", (1.0,), versions=versions | {"harness": "newer"})
    assert compare(before, newer) == 0
    machine = plain_record().machine | {"cpu": "another"}
    elsewhere = write_rounds(tmp_path / "elsewhere", (1.0,), machine=machine)
    assert compare(before, elsewhere) == 1
    assert "are not comparable: different cpu" in capsys.readouterr().err


def test_directories_without_a_shared_trial_are_one_line(tmp_path: Path, capsys: Output) -> None:
    before = write_rounds(tmp_path / "before", (1.0,))
    (tmp_path / "empty").mkdir()
    for after, reason in (("empty", "no records in"), ("none", "none")):
        assert compare(before, tmp_path / after) == 1
        read_refusal(capsys, reason)
    for text in ("1", "-0.1", "x", "nan"):
        assert compare(before, before, f"--tolerance={text}") == 1
        read_refusal(capsys, "expected a number from 0 to below 1")
