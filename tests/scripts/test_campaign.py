"""The campaign's machinery: classes found, cases seeded, shared out, kept, gone on with, told."""

from __future__ import annotations

import importlib
import json
import math
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from scripts import campaign
from scripts.campaign_parts import classes
from scripts.campaign_parts.case import Case, Outcome, Run, cases_of, found_classes
from scripts.campaign_parts.done import Done, State
from scripts.campaign_parts.running import Plan, run_cases
from scripts.campaign_parts.table import Facts, is_clean, markdown
from scripts.marked_page import END, MarkedPage
from tests.support.small_campaigns import Noted

EVER = Plan(seed=3, share=1.0, until_s=math.inf)
FACTS = Facts("2026-01-02", "Some CPU", 3, 1.0, {"a": 2, "b": 3})


def nothing(_: Done) -> None:
    return


def done(name: str, *verdicts: str) -> list[Done]:
    cases = [Case(name, number, 3) for number in range(len(verdicts))]
    outcomes = [Outcome(verdict, "words") for verdict in verdicts]  # type: ignore[arg-type]
    return [Done(case, one, 30.0) for case, one in zip(cases, outcomes, strict=True)]


def test_every_file_of_the_folder_is_a_class_with_cases_in_plain_json() -> None:
    (folder,) = classes.__path__
    names = {path.stem for path in Path(folder).glob("[!_]*.py")}
    found = found_classes()
    assert set(found) == names
    assert {"kills", "full_disks", "adapters", "corpora", "command_lines"} <= names
    for name, kind in found.items():
        cases = cases_of(name, kind, seed=1, share=1.0)
        assert len(cases) == kind.N_CASES
        assert json.loads(json.dumps([dict(case.does) for case in cases])) == [
            case.does for case in cases
        ]


def test_a_class_is_found_by_its_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_classes").mkdir()
    (tmp_path / "some_classes" / "__init__.py").touch()
    (tmp_path / "some_classes" / "mine.py").write_text("N_CASES = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = found_classes(importlib.import_module("some_classes"))
    assert found["mine"].N_CASES == 7
    del sys.modules["some_classes"]


def test_a_seed_is_a_campaign() -> None:
    assert cases_of("a", Noted(), 1, 1.0) == cases_of("a", Noted(), 1, 1.0)
    first, other = (cases_of("a", Noted(), seed, 1.0) for seed in (1, 2))
    assert all(a.does != b.does for a, b in zip(first, other, strict=True))
    assert len({case.does["draw"] for case in first}) == 10
    assert first[0].rng.random() == first[0].rng.random() != first[1].rng.random()


@pytest.mark.parametrize(("share", "n"), [(1.0, 10), (0.5, 5), (0.3, 3), (0.01, 1)])
def test_a_share_is_a_part_of_the_same_cases(share: float, n: int) -> None:
    some = cases_of("a", Noted(), 4, share)
    assert len(some) == n
    assert all(case in cases_of("a", Noted(), 4, 1.0) for case in some)


def test_a_share_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="share=0"):
        replace(EVER, share=0.0)
    with pytest.raises(SystemExit):
        campaign.main(["--share", "2"])
    assert "2 is not above 0 and at most 1" in capsys.readouterr().err


def test_a_verdict_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="fine is no verdict"):
        Outcome("fine")  # type: ignore[arg-type]


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    kind, path = Noted(), tmp_path / "state.jsonl"
    run_cases({"a": kind}, EVER, State(path), nothing)
    found = run_cases({"a": kind}, EVER, State(path), nothing)
    assert kind.ran == list(range(10))
    assert len(found["a"]) == 10
    path.write_text(path.read_text()[:-20])  # killed while the last one was written
    run_cases({"a": kind}, EVER, State(path), nothing)
    assert kind.ran == [*range(10), 9]
    run_cases({"a": kind}, EVER, State(path), nothing)
    assert kind.ran == [*range(10), 9]


def test_a_case_of_other_content_is_done_again(tmp_path: Path) -> None:
    kind, path = Noted(), tmp_path / "state.jsonl"
    run_cases({"a": kind}, EVER, State(path), nothing)
    kind.what = "other"
    found = run_cases({"a": kind}, EVER, State(path), nothing)
    assert kind.ran == [*range(10), *range(10)]
    assert all("other" in one.case.does for one in found["a"])


def test_each_case_is_on_the_disk_before_the_next_begins(tmp_path: Path) -> None:
    path, n_lines = tmp_path / "state.jsonl", []

    def look(_: Done) -> None:
        n_lines.append(len(path.read_text().splitlines()))

    run_cases({"a": Noted()}, EVER, State(path), look)
    assert n_lines == list(range(1, 11))


def test_no_case_begins_after_the_time_and_the_next_call_goes_on(tmp_path: Path) -> None:
    ticks = count()
    kind, later, path = Noted(), Noted(), tmp_path / "state.jsonl"
    plan = replace(EVER, until_s=10.0, now=lambda: float(next(ticks)))
    run_cases({"a": kind, "b": later}, plan, State(path), nothing)
    assert 0 < len(kind.ran) < 10
    assert later.ran == []
    run_cases({"a": kind, "b": later}, EVER, State(path), nothing)
    assert kind.ran == later.ran == list(range(10))


def test_a_case_that_fails_itself_is_told_and_the_others_run(tmp_path: Path) -> None:
    told: list[Done] = []
    kind = Noted(outcomes={2: Outcome("lost")}, fails_at=4)
    run_cases({"a": kind}, EVER, State(tmp_path / "state.jsonl"), told.append)
    assert [one.outcome.verdict for one in told] == ["ok"] * 2 + ["lost", "ok", "other"] + [
        "ok"
    ] * 5
    assert told[4].outcome.words == "the case itself failed: ZeroDivisionError: odd"


def test_a_class_that_cannot_be_prepared_is_told_for_each_of_its_cases(tmp_path: Path) -> None:
    class Unprepared(Noted):
        def runner(self, folder: Path) -> AbstractContextManager[Run]:
            raise OSError("no disk")

    classes = {"a": Unprepared(), "b": Noted()}
    found = run_cases(classes, EVER, State(tmp_path / "state.jsonl"), nothing)
    assert {one.outcome.verdict for one in found["a"]} == {"other"}
    assert found["a"][0].outcome.words.endswith("no case of this class can run: no disk")
    assert {one.outcome.verdict for one in found["b"]} == {"ok"}


def test_the_table_counts_and_says_what_did_not_run() -> None:
    found = {"a": done("a", "ok", "lost"), "b": done("b", "ok", "not_judged")}
    lines = markdown(found, FACTS).splitlines()
    assert lines[0] == "2026-01-02, Some CPU, seed 3, share 1: 5 cases."
    heads, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:])
    by_class = {row[0]: dict(zip(heads, row, strict=True)) for row in rows}
    assert by_class["a"] | {"cases": "2", "ok": "1", "lost": "1", "hang": "0"} == by_class["a"]
    assert by_class["b"]["cases"] == "2 of 3"
    assert by_class["b"]["not judged"] == "1"
    assert by_class["all"]["cases"] == "4 of 5"
    assert by_class["all"]["minutes"] == "2.0"
    assert "skipped" not in heads


@pytest.mark.parametrize(
    ("verdicts", "n", "is_good"),
    [
        (("ok", "skipped", "not_judged"), 3, True),
        (("ok", "ok"), 3, False),
        (("ok", "ok", "hang"), 3, False),
    ],
)
def test_clean_is_all_run_and_nothing_broken(
    verdicts: Sequence[str], n: int, is_good: bool
) -> None:
    assert is_clean({"a": done("a", *verdicts)}, {"a": n}) == is_good


def test_the_command_writes_its_table_and_json_and_tells_what_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = MarkedPage(tmp_path / "faults.md", "campaign")
    page.path.write_text(f"before\n{page.begin}{END}after\n")
    kinds = {"a": Noted(outcomes={1: Outcome("lost", "a record")}), "b": Noted()}
    monkeypatch.setattr(campaign, "PAGE", page)
    monkeypatch.setattr(campaign, "found_classes", lambda: kinds)
    folder = ["--folder", str(tmp_path), "--seed", "5"]
    assert campaign.main([*folder, "--only", "b"]) == 0
    assert kinds["a"].ran == []
    assert page.written == ""
    assert campaign.main([*folder, "--write"]) == 1
    said = capsys.readouterr()
    assert "a 1: lost: a record" in said.err
    assert page.written.endswith(said.out.strip().splitlines()[-1])
    plain = json.loads((tmp_path / "seed-5.json").read_text())
    assert plain["classes"]["a"]["verdicts"] == {"ok": 9, "lost": 1}
    assert [one["outcome"]["words"] for one in plain["broken"]] == ["a record"]
    assert campaign.main([*folder, "--only", "b", "--again"]) == 0
    assert kinds["b"].ran == [*range(10), *range(10)]


def test_cases_hear_sigint_where_a_shell_had_the_campaign_ignore_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    monkeypatch.setattr(campaign, "found_classes", lambda: {"a": Noted()})
    asks = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    try:
        campaign.main(["--folder", str(tmp_path)])
        ignores = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ignores.stdout.strip() == "False"
