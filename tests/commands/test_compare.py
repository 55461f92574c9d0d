"""`bench-compare`: the same trials of two results directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.commands.compare import main
from dynbatch.harness.records.record import build_record_path, write_record
from tests.support.records import plain_record, speed_of
from tests.support.refusals import read_refusal

Output = pytest.CaptureFixture[str]


def write_rounds(folder: Path, factors: tuple[float, ...], **changes: Any) -> Path:
    """Write a round for every factor, which multiplies the times; `changes` apply to records."""
    for round_, factor in enumerate(factors):
        record = plain_record(round_, changes)
        passes_s = tuple(factor * seconds for seconds in record.passes_s)
        if record.status == "ok":
            rate = speed_of(passes_s, record.n_instances)
            record = record.model_copy(update={"passes_s": passes_s, "instances_per_s": rate})
        path = build_record_path(folder, record.trial_id, round_)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_record(path, record)
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
    assert main([str(before), str(after)]) == code
    printed = " ".join(capsys.readouterr().out.split())
    assert verdict in printed
    assert f"1 trials compared, {int(code == 3)} slower or failed" in printed
    assert main([str(before), str(after), "--tolerance", "0.9"]) == 0


def test_a_trial_that_fails_now_fails_the_comparison(tmp_path: Path, capsys: Output) -> None:
    before = write_rounds(tmp_path / "before", (1.0,))
    after = write_rounds(tmp_path / "after", (1.0,), status="timeout", reason="too long")
    assert main([str(before), str(after)]) == 3
    assert "timeout failed" in " ".join(capsys.readouterr().out.split())


def test_other_code_is_comparable_and_another_machine_is_not(
    tmp_path: Path, capsys: Output
) -> None:
    versions = plain_record().versions
    before = write_rounds(tmp_path / "before", (1.0,))
    newer = write_rounds(tmp_path / "newer", (1.0,), versions=versions | {"harness": "newer"})
    assert main([str(before), str(newer)]) == 0
    machine = plain_record().machine | {"cpu": "another"}
    elsewhere = write_rounds(tmp_path / "elsewhere", (1.0,), machine=machine)
    assert main([str(before), str(elsewhere)]) == 1
    assert "are not comparable: different cpu" in capsys.readouterr().err


def test_directories_without_a_shared_trial_are_one_line(tmp_path: Path, capsys: Output) -> None:
    before = write_rounds(tmp_path / "before", (1.0,))
    (tmp_path / "empty").mkdir()
    for after, reason in (("empty", "no records in"), ("none", "none")):
        assert main([str(before), str(tmp_path / after)]) == 1
        read_refusal(capsys, reason)
    for text in ("1", "-0.1", "x", "nan"):
        assert main([str(before), str(before), f"--tolerance={text}"]) == 1
        read_refusal(capsys, "expected a number from 0 to below 1")
