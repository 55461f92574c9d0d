"""Records: validated when read and written, written atomically, and never measured twice."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.errors import OutputError, RecordError
from dynbatch.harness.machine.files import drop_leftovers
from dynbatch.harness.planning.artifacts import PlannedTrial
from dynbatch.harness.records.record import (
    Measured,
    build_record,
    build_record_path,
    find_record,
    locate_record,
    read_record,
    write_record,
)
from dynbatch.harness.trials.spec import Limits, TrialSpec
from tests.support.measured import MakeSpec
from tests.support.records import SPEC, plain_record, turn
from tests.support.refusals import expect_refusal, raising

Patch = pytest.MonkeyPatch
# Fields of a record that do not depend on the measurement.
GIVEN = {
    *("schema_version", "trial", "trial_id", "source_sha256", "machine", "versions", "config"),
    *("gpu", "started_at", "finished_at", "command"),
}


def test_of_a_trial_that_died_nothing_is_made_up(make_spec: MakeSpec) -> None:
    spec = make_spec(round=3, command="bench some=thing")
    measured = Measured()
    measured.end("crash", "over\n  two lines")
    record = build_record(spec, measured, {"fake": "1.0"}, "2026-01-01T00:00:00+00:00")
    content = json.loads(record.model_dump_json(exclude_defaults=True))
    assert set(content) == GIVEN - {"schema_version", "gpu"} | {"status", "reason"}
    assert (content["status"], content["reason"]) == ("crash", "over two lines")
    assert (record.trial.round, record.command) == (3, "bench some=thing")
    assert (record.trial_id, record.config) == (spec.trial_id, spec.to_dict())
    assert record.started_at == "2026-01-01T00:00:00+00:00" < record.finished_at
    with pytest.raises(ValueError, match="compile_seconds"):
        measured.compile_seconds = 1.0  # type: ignore[attr-defined]


@pytest.mark.parametrize("choice", [None, {"candidates": [], "n_tries": 3}])
def test_deleted_fields_of_old_records_are_ignored(tmp_path: Path, choice: object) -> None:
    record = plain_record(policy="auto" if choice else None)
    deleted = {"policy_choice": choice, "policy_search_s": 1.5 if choice else None}
    path = tmp_path / "r0.json"
    path.write_text(json.dumps(record.model_dump(mode="json") | deleted))
    assert read_record(path) == record


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda text: text[: len(text) // 2], "JSON"),
        (lambda text: text.replace('"schema_version": 3', '"schema_version": 2'), "schema_version"),
        (lambda text: text.replace('"status": "ok"', '"status": "fine"'), "status"),
        (lambda text: text.replace('"status": "ok",', ""), "status"),
        (lambda text: text.replace('"reason"', '"raeson"'), "raeson"),
        (lambda text: f"[{text}]", "an object"),
    ],
)
def test_damaged_record_is_named(tmp_path: Path, damage: Callable[[str], str], fault: str) -> None:
    path = tmp_path / "r0.json"
    write_record(path, plain_record())
    path.write_text(damage(path.read_text()))
    with pytest.raises(RecordError, match=rf"r0\.json is not a record of schema 3.*{fault}"):
        read_record(path)
    assert find_record(path) is None


def test_a_missing_record_is_an_error_or_none(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read"):
        read_record(tmp_path / "r0.json")
    assert find_record(tmp_path / "r0.json") is None


def test_a_writer_that_dies_leaves_the_old_record(tmp_path: Path, monkeypatch: Patch) -> None:
    path = tmp_path / "r0.json"
    old = plain_record()
    write_record(path, old)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            write_record(path, plain_record(changes={"instances_per_s": 1.0}))
        assert list(tmp_path.iterdir()) == [path], "who is interrupted clears up"
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # a killed process does not unlink
        with pytest.raises(KeyboardInterrupt):
            write_record(path, plain_record(changes={"instances_per_s": 1.0}))
    assert read_record(path) == old
    assert len(list(tmp_path.iterdir())) == 2  # the record and a half-written file
    other = tmp_path / ".r1.json.77.tmp"
    other.touch()
    drop_leftovers(path)
    assert {*tmp_path.iterdir()} == {path, other}, "leftovers of other records stay"


def test_older_records_of_one_moment_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "r0.json"
    records = [plain_record(changes={"instances_per_s": speed}) for speed in (1.0, 2.0, 3.0, 4.0)]
    for record in records:
        write_record(path, record)
        os.utime(path, ns=(10**18, 10**18))
    aside = [read_record(one) for one in (tmp_path / "superseded").iterdir()]
    assert sorted([*aside, read_record(path)], key=lambda one: one.instances_per_s or 0) == records


@pytest.mark.parametrize("has_links", [True, False])
def test_record_replacement_is_atomic(tmp_path: Path, monkeypatch: Patch, has_links: bool) -> None:
    """The old record exists until the new one replaces it, even if the process is killed."""
    path = tmp_path / "r0.json"
    old, new = plain_record(), plain_record(changes={"instances_per_s": 1.0})
    write_record(path, old)
    replace, link = Path.replace, os.link

    def seen(source: Path, target: Path) -> Path:
        assert read_record(path) == old
        return replace(source, target)

    refuse = raising(PermissionError(1, "Operation not permitted"))
    monkeypatch.setattr(Path, "replace", seen)
    monkeypatch.setattr(os, "link", link if has_links else refuse)
    write_record(path, new)
    assert read_record(path) == new
    (aside,) = (tmp_path / "superseded").iterdir()
    assert read_record(aside) == old


def test_failed_replacement_leaves_only_the_old_record(tmp_path: Path, monkeypatch: Patch) -> None:
    path = tmp_path / "r0.json"
    write_record(path, plain_record())
    monkeypatch.setattr(Path, "replace", raising(OSError(5, "Input/output error")))
    with pytest.raises(OutputError, match="Input/output error"):
        write_record(path, plain_record(changes={"instances_per_s": 1.0}))
    assert not list((tmp_path / "superseded").iterdir())
    assert read_record(path) == plain_record()


ROOMY = Limits(time_s=999.0)
ANSWERS: list[tuple[str, dict[str, Any], str, bool]] = [
    *((status, {}, "a", True) for status in ("ok", "wrong_result", "oom", "timeout")),
    *((status, {}, "a", False) for status in ("crash", "unsupported")),
    ("ok", {}, "b", False),  # other code
    ("ok", {"round": 1}, "a", False),
    ("ok", {"hidden_size": 99}, "a", False),
    ("ok", {"python": "/elsewhere/bin/python"}, "a", False),
    ("ok", {"data_root": "elsewhere", "command": "typed otherwise"}, "a", True),
    # Another limit matters if a limit ended the trial.
    ("ok", {"limits": ROOMY}, "a", True),
    ("timeout", {"limits": ROOMY}, "a", False),
    ("oom", {"limits": ROOMY}, "a", False),
]


@pytest.mark.parametrize(("status", "asked", "code", "answers"), ANSWERS)
def test_record_validity_depends_on_status_spec_and_code(
    status: str, asked: dict[str, Any], code: str, answers: bool
) -> None:
    record = plain_record(changes={"status": status})
    assert record.is_valid_for(TrialSpec(**(SPEC | asked)), code * 64) is answers


def test_a_record_has_one_path_for_bench_and_pipeline(make_spec: MakeSpec, tmp_path: Path) -> None:
    pattern = str(build_record_path(tmp_path, "{trial}", "{round}"))
    assert pattern == f"{tmp_path}/raw/{{trial}}/r{{round}}.json"
    spec = make_spec(round=2)
    planned = PlannedTrial(spec, {}, (), rounds=3)
    assert planned.list_record_paths(tmp_path)[2] == locate_record(tmp_path, spec)
    assert pattern.format(trial=spec.trial_id, round=2) == str(locate_record(tmp_path, spec))


GOOD = json.loads(plain_record(0).model_dump_json())
_TURN = turn(0).model_dump()
EDITS: dict[str, tuple[dict[str, Any], str]] = {
    "a faster speed": ({"instances_per_s": 6.0}, "instances_per_s is 6.0: expected 5.3"),
    "no speed": ({"instances_per_s": None}, "instances_per_s is None"),
    "a shorter pass": ({"passes_s": [0.7]}, "expected 5.7"),
    "a pass without a turn": ({"turns": [_TURN], "passes_s": [1.0, 1.0]}, "1 passes in turns"),
    "no passes": ({"passes_s": []}, "status is ok, but passes_s is empty"),
    "a time before it began": ({"passes_s": [0.5, -0.25]}, "passes_s has -0.25"),
    "no mini-batches": ({"n_mini_batches": 0}, "n_mini_batches or n_instances is missing"),
    "more instances": ({"n_instances": 8}, "instances_per_s is 5.3"),
    "instances unknown": ({"n_instances": None}, "n_instances is missing"),
    "another batch size": (
        {"trial": GOOD["trial"] | {"batch_size": 64}},
        "trial.batch_size is 64, but config.batch_size is 2",
    ),
    "a check that failed": ({"check": {"status": "failed"}}, "status is ok, but the check failed"),
}


def read(tmp_path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a record after reading it from a file."""
    path = tmp_path / "r0.json"
    path.write_text(json.dumps(content))
    return json.loads(read_record(path).model_dump_json())


@pytest.mark.parametrize("name", EDITS)
def test_edited_record_gives_one_line(tmp_path: Path, name: str) -> None:
    edit, words = EDITS[name]
    with expect_refusal(words, "; delete it and measure again", kind=RecordError):
        read(tmp_path, GOOD | edit)


@pytest.mark.parametrize(
    "edit",
    [
        {},
        {"status": "timeout", "passes_s": [], "instances_per_s": None},
        {"passes_s": [0.0, 0.0], "instances_per_s": None},  # too short for the clock
    ],
)
def test_valid_worker_output_is_read_unchanged(tmp_path: Path, edit: dict[str, Any]) -> None:
    assert read(tmp_path, GOOD | edit) == GOOD | edit
