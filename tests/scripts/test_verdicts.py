"""Every verdict is told apart: sabotaged commands, records, files and children."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from scripts.campaign_parts.case import Case, Outcome
from scripts.campaign_parts.child import Child, a_child
from scripts.campaign_parts.classes import kills
from scripts.campaign_parts.classes.kills import Command, killed
from scripts.campaign_parts.judging import (
    fault_of_ending,
    fault_of_leftovers,
    fault_of_survivors,
    first_fault,
)
from scripts.campaign_parts.kept import Kept, litter
from scripts.campaign_parts.place import Ended, Place, python
from scripts.campaign_parts.small_bench import beside_each_other

CHILD = "tests.support.odd_answers"
DETACHED = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "case").mkdir()
    return Place(tmp_path / "case", tmp_path / "cache", grace_s=0.2)


def verdict_of(outcome: Outcome | None) -> str | None:
    return outcome.verdict if outcome else None


def write_record(results: Path, name: str, **content: object) -> None:
    path = results / "raw" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"status": "ok", **content}))


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        ("pass", None),
        ("raise SystemExit(1)", None),
        ("raise SystemExit(2)", "other"),
        ("raise ValueError('odd')", "traceback"),
        ("import os; os.abort()", "other"),
        ("import sys; sys.exit('bench: one line')", None),
    ],
)
def test_how_a_command_ends(place: Place, code: str, verdict: str | None) -> None:
    ended = place.run([sys.executable, "-c", code], 60)
    assert verdict_of(fault_of_ending(ended, (0, 1))) == verdict


def test_a_command_that_hangs_is_ended_with_all_that_it_started(place: Place) -> None:
    ended = place.run([sys.executable, "-c", f"{DETACHED}; import time; time.sleep(600)"], 1)
    assert verdict_of(fault_of_ending(ended, (0,))) == "hang"
    assert place.survivors() == []


def test_a_campaign_that_is_interrupted_ends_what_it_started(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = place.start([sys.executable, "-c", "import time; time.sleep(600)"])

    def interrupted(timeout: float) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        place.wait(process, 60)
    assert place.processes() == []


def test_a_process_that_lives_on_is_found_wherever_it_hides(place: Place) -> None:
    place.run([sys.executable, "-c", DETACHED], 60)
    fault = fault_of_survivors(place)
    assert verdict_of(fault) == "leftover"
    assert fault is not None
    assert "sleep 600" in fault.words
    assert fault_of_survivors(place) is None


def test_files_that_are_left_are_found(place: Place) -> None:
    write_record(place.results, "a/r0.json")
    (place.results / ".lock").touch()
    (place.results / "a.log").touch()
    assert fault_of_leftovers(place) is None
    (place.results / "raw" / "a" / "r1.json").touch()
    (place.results / "raw" / "a" / ".r2.json.17.tmp").write_text("{")
    assert litter(place.results) == ["raw/a/.r2.json.17.tmp", "raw/a/r1.json"]
    assert verdict_of(fault_of_leftovers(place)) == "leftover"


def test_temporary_files_are_told_where_they_are_asked_for(place: Place) -> None:
    place.run([sys.executable, "-c", "import tempfile; tempfile.mkdtemp(prefix='bench-')"], 60)
    assert verdict_of(fault_of_leftovers(place)) == "leftover"
    assert fault_of_leftovers(place, temporary=False) is None


def test_files_do_not_grow_without_end(place: Place) -> None:
    code = "import os\nwhile True: os.write(1, b'x' * 4096)"
    ended = place.run([sys.executable, "-c", code], 60, file_bytes=2**16)
    assert ended.returncode == 1
    assert (place.folder / "said.out").stat().st_size == 2**16


def test_records_that_were_complete_are_compared(place: Place) -> None:
    write_record(place.results, "a/r0.json", n=1)
    before = Kept.of(place.results)
    assert Kept.of(place.results).fault_against(before) is None
    write_record(place.results, "a/r1.json", n=1)
    assert Kept.of(place.results).fault_against(before) is None, "a new one is no fault"
    write_record(place.results, "a/superseded/r1.5.json", status="crash")
    assert Kept.of(place.results).fault_against(before) is None, "a failed one may be tried again"
    write_record(place.results, "a/superseded/r1.6.json")
    assert verdict_of(Kept.of(place.results).fault_against(before)) == "measured_twice"
    write_record(place.results, "a/r0.json", n=2)
    assert verdict_of(Kept.of(place.results).fault_against(before)) == "measured_twice"
    (place.results / "raw" / "a" / "r0.json").write_text('{"status": "o')
    assert verdict_of(Kept.of(place.results).fault_against(before)) == "lost"
    (place.results / "raw" / "a" / "r0.json").unlink()
    assert verdict_of(Kept.of(place.results).fault_against(before)) == "lost"


@pytest.mark.parametrize(
    ("pids", "pair"),
    [
        ("", None),
        ("1 1 1 2 2 3", None),
        ("1 1 2 1 2", ("1", "2")),
        ("1 2 2 1", ("1", "2")),
    ],
)
def test_measurements_beside_each_other_are_seen(
    tmp_path: Path, pids: str, pair: tuple[str, str] | None
) -> None:
    log = tmp_path / "measured.log"
    if pids:
        log.write_text("".join(f"goes on, {pid}\n" for pid in pids.split()))
    assert beside_each_other(log) == pair


def test_the_first_fault_is_told() -> None:
    assert first_fault(None, None) == Outcome("ok")
    assert first_fault(None, Outcome("lost"), Outcome("hang")) == Outcome("lost")


def test_a_child_that_dies_or_hangs_is_begun_anew(place: Place) -> None:
    with a_child(CHILD, place) as child:
        first = child.ask({"do": "answer"}, 60)
        assert child.ask({"do": "answer"}, 60) == first
        assert "ValueError: odd" in child.ask({"do": "raise"}, 60)["traceback"]
        assert child.ask({"do": "die"}, 60) == {"died": 3}
        second = child.ask({"do": "answer"}, 60)
        assert second["pid"] != first["pid"]
        assert child.ask({"do": "hang"}, 0.2) == {"hung": 0.2}
        assert _is_gone(second["pid"])
        third = child.ask({"do": "answer"}, 60)
    assert _is_gone(third["pid"])
    assert isinstance(child, Child)


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


RECORDS = frozenset({"a/r0.json", "b/r0.json"})


@pytest.mark.slow
@pytest.mark.parametrize("signal_", ["SIGKILL", "SIGTERM"])
@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        ("none", "ok"),
        ("lost", "lost"),
        ("measured_twice", "measured_twice"),
        ("leftover", "leftover"),
        ("traceback", "traceback"),
        ("hang", "hang"),
    ],
)
def test_what_a_kill_brings_to_light(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, verdict: str, signal_: str
) -> None:
    monkeypatch.setattr(kills, "LIMIT_S", 3.0)

    def line(place: Place) -> list[str]:
        return python("tests.support.odd_bench", str(place.results), fault)

    does = {
        "command": "bench",
        "signal": signal_,
        "moment": "record_written",
        "nth": 1,
        "after_s": 0.0,
        "again_at_once": False,
    }
    command = Command(line, lambda _: None, RECORDS)
    place = Place(tmp_path / "case", tmp_path / "cache", grace_s=0.2)
    place.folder.mkdir()
    outcome = killed(command, Case("kills", 0, 0, does), place)
    assert outcome.verdict == verdict, outcome.words
    assert place.survivors() == []


@pytest.mark.slow
def test_a_worker_that_measures_on_without_its_parent_is_told(place: Place) -> None:
    patient = Place(place.folder, place.cache, grace_s=30.0)
    patient.run(python("tests.support.odd_bench", str(place.results), "orphan"), 60)
    fault = kills.fault_of_orphans(patient)
    assert fault == Outcome("leftover", "a worker measured on after its parent was gone")
    assert kills.fault_of_orphans(patient) is None


@pytest.mark.parametrize(
    ("ended", "verdict"),
    [
        (Ended(143, "", "[1/4] null  ok\nbench: 1 record is kept\n", 0.0), None),
        (Ended(143, "", "[1/4] null  ok\n", 0.0), "other"),
        (Ended(143, "", "bench: one\nbench: two\n", 0.0), "other"),
        (Ended(-15, "", "bench: one\n", 0.0), "other"),
        (Ended(0, "", "", 0.0), None),
    ],
)
def test_told_to_stop_a_command_says_one_line(ended: Ended, verdict: str | None) -> None:
    assert verdict_of(kills.fault_of_end(ended, "SIGTERM")) == verdict


def test_what_a_command_said_is_in_the_words(place: Place) -> None:
    fault = fault_of_ending(Ended(7, "out", "first\nlast words\n\n", 0.0), (0,))
    assert fault == Outcome("other", "exit code 7, not 0; last words")
