"""The campaign's assertions, which must fail for sabotaged commands and records."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sandbox import (
    Ended,
    Kept,
    Sandbox,
    assert_ended,
    assert_kept,
    assert_no_survivors,
    assert_nothing_left,
    assert_one_line,
    find_simultaneous,
    sandbox,
)

DETACHED = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)"
FLOOD = "import os\nwhile True: os.write(1, b'x' * 4096)"


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with sandbox(grace_s=0.2) as made:
        yield made


def run(box: Sandbox, code: str, limit_s: float = 60, **how: int) -> Ended:
    return box.run([sys.executable, "-c", code], limit_s, **how)  # type: ignore[arg-type]


def write_record(box: Sandbox, name: str, **content: object) -> None:
    path = box.results / "raw" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"status": "ok", **content}))


@pytest.mark.parametrize("code", ["pass", "import sys; sys.exit('bench: one line')"])
def test_right_ends(box: Sandbox, code: str) -> None:
    assert_ended(run(box, code), (0, 1))


@pytest.mark.parametrize(
    ("code", "limit_s", "fault"),
    [
        ("raise SystemExit(2)", 60, "exit code 2"),
        ("raise ValueError('odd')", 60, "stack: ValueError: odd"),
        ("import os; os.abort()", 60, "exit code -6"),
        (f"{DETACHED}; import time; time.sleep(600)", 1, "hang"),
    ],
)
def test_wrong_ends(box: Sandbox, code: str, limit_s: float, fault: str) -> None:
    ended = run(box, code, limit_s)
    with pytest.raises(AssertionError, match=fault):
        assert_ended(ended, (0, 1))
    assert box.processes() == []


@pytest.mark.parametrize(
    ("printed", "is_one"),
    [
        ("[1/4] null  ok\nbench: 1 record is saved\n", True),
        ("[1/4] null  ok\n", False),
        ("bench: one\nbench: two\n", False),
        ("bench: seed=x\nis not allowed\n", False),
        ("seed=x is not allowed\n", False),
    ],
)
def test_one_line_of_the_command(printed: str, is_one: bool) -> None:
    if is_one:
        return assert_one_line(Ended(1, "", printed), "bench")
    with pytest.raises(AssertionError):
        assert_one_line(Ended(1, "", printed), "bench")


def test_interrupted_wait_ends_started_processes(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = box.start(["sleep", "600"])

    def interrupt(timeout: float) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        box.wait(process)
    assert box.processes() == []


def test_a_process_that_lives_on_is_found_wherever_it_hides(box: Sandbox) -> None:
    run(box, DETACHED)
    with pytest.raises(AssertionError, match=r"1 processes live on: .*sleep 600"):
        assert_no_survivors(box)
    assert_no_survivors(box)


@pytest.mark.parametrize("name", ["raw/a/r1.json", "raw/a/.r2.json.17.tmp"])
def test_half_written_files_are_found(box: Sandbox, name: str) -> None:
    write_record(box, "a/r0.json")
    (box.results / ".lock").touch()
    (box.results / "a.log").touch()
    assert_nothing_left(box)
    (box.results / name).touch()
    with pytest.raises(AssertionError, match=name):
        assert_nothing_left(box)


def test_temporary_files_are_found(box: Sandbox) -> None:
    run(box, "import tempfile; tempfile.mkdtemp(prefix='bench-')")
    assert_nothing_left(box, temporary=False)
    with pytest.raises(AssertionError, match="bench-"):
        assert_nothing_left(box)


def test_a_flood_does_not_fill_the_disk(box: Sandbox) -> None:
    assert run(box, FLOOD, file_bytes=2**16).returncode == 1
    assert (box.folder / "said.out").stat().st_size == 2**16


def test_records_are_compared(box: Sandbox) -> None:
    write_record(box, "a/r0.json", n=1)
    before = Kept.of(box.results)
    write_record(box, "a/r1.json", n=1)
    write_record(box, "a/superseded/r1.5.json", status="crash")  # a failed trial may be repeated
    assert_kept(box.results, before, {"a/r0.json", "a/r1.json"})
    with pytest.raises(AssertionError, match="missing"):
        assert_kept(box.results, before, {"a/r2.json"})
    write_record(box, "a/superseded/r1.6.json")
    with pytest.raises(AssertionError, match="measured twice, and the first set aside"):
        assert_kept(box.results, before)
    write_record(box, "a/r0.json", n=2)
    with pytest.raises(AssertionError, match=r"measured twice: a/r0\.json"):
        assert_kept(box.results, before)
    (box.results / "raw" / "a" / "r0.json").write_text('{"status": "o')
    with pytest.raises(AssertionError, match=r"lost: a/r0\.json"):
        assert_kept(box.results, before)


@pytest.mark.parametrize(
    ("pids", "pair"),
    [("", None), ("1 1 1 2 2 3", None), ("1 1 2 1 2", ("1", "2")), ("1 2 2 1", ("1", "2"))],
)
def test_simultaneous_measurements_are_found(
    tmp_path: Path, pids: str, pair: tuple[str, str] | None
) -> None:
    log = tmp_path / "measured.log"
    log.write_text("".join(f"goes on, {pid}\n" for pid in pids.split()))
    assert find_simultaneous(log) == pair
