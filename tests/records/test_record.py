"""Records: validated both ways, written whole or not at all, never measured twice."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import ConfigError, OutputError, RecordError
from harness.machine.regular_files import drop_leftovers
from harness.planning.artefacts import PlannedTrial
from harness.records.files import check_writable
from harness.records.record import (
    Record,
    find_record,
    path_of,
    read_record,
    record_path,
    write_record,
)
from harness.trials.spec import Limits, TrialSpec

MakeRecord = Callable[..., Record]


def test_what_is_written_is_read(make_record: MakeRecord, tmp_path: Path) -> None:
    record = make_record(warnings=("busy",), phases_s={"forward": 0.1, "update": None})
    write_record(tmp_path / "deep" / "r0.json", record)
    assert read_record(tmp_path / "deep" / "r0.json") == record


def test_the_fields_that_others_read_are_there(make_record: MakeRecord) -> None:
    content = json.loads(make_record().model_dump_json())
    assert set(content) == {
        *("schema_version", "status", "reason", "trial", "trial_id", "instances_per_s"),
        *("phases_s", "learn_s", "compile_s", "samples_s", "n_batches", "n_launches"),
        *(
            "bytes_copied",
            "n_copies",
            "lower_bound",
            "n_flop",
            "bytes_touched",
            "choose_s",
            "choice",
            "moving_share",
            "n_compilations",
            "peak_memory_bytes",
            "baseline_memory_bytes",
            "check",
            "between_s",
            "unseen_ratio",
            "fingerprint",
            "warnings",
            "inputs_sha256",
            "in_force",
        ),
        *("machine", "versions", "config", "source_sha256", "n_mini_batches", "n_instances"),
        *("started_at", "finished_at", "command"),
        *("gpu", "gpu_clocks_mhz", "n_warmup", "empty_sample_s", "marked_samples_s"),
        "core_rate_per_s",
    }
    assert set(content["trial"]) == {
        *("system", "policy", "model", "dataset", "batch_size", "hidden_size", "mode"),
        *("device", "threads", "seed", "round"),
    }
    phases = {"construct", "schedule", "forward", "backward", "update"}
    assert content["phases_s"] == dict.fromkeys(phases)


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda text: text[: len(text) // 2], "JSON"),
        (lambda text: text.replace('"schema_version": 1', '"schema_version": 2'), "schema_version"),
        (lambda text: text.replace('"status": "ok"', '"status": "fine"'), "status"),
        (lambda text: text.replace('"reason"', '"raeson"'), "raeson"),
    ],
)
def test_a_damaged_record_is_named(
    make_record: MakeRecord, tmp_path: Path, damage: Callable[[str], str], fault: str
) -> None:
    path = tmp_path / "r0.json"
    write_record(path, make_record())
    path.write_text(damage(path.read_text()))
    with pytest.raises(RecordError, match=rf"r0\.json is not a record of schema 1.*{fault}"):
        read_record(path)
    assert find_record(path) is None


def test_a_missing_record_is_an_error_or_none(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read"):
        read_record(tmp_path / "r0.json")
    assert find_record(tmp_path / "r0.json") is None


def test_a_writer_that_dies_leaves_the_old_record(
    make_record: MakeRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r0.json"
    old = make_record()
    write_record(path, old)

    def die(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", die)
        with pytest.raises(KeyboardInterrupt):
            write_record(path, make_record(instances_per_s=1.0))
        assert list(tmp_path.iterdir()) == [path], "who is interrupted clears up"
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # who is killed does not
        with pytest.raises(KeyboardInterrupt):
            write_record(path, make_record(instances_per_s=1.0))
    assert read_record(path) == old
    assert len(list(tmp_path.iterdir())) == 2  # the record and what was left half-written
    drop_leftovers(path)
    assert list(tmp_path.iterdir()) == [path]


def test_leftovers_of_other_records_stay(tmp_path: Path) -> None:
    other = tmp_path / ".r1.json.77.tmp"
    other.touch()
    drop_leftovers(tmp_path / "r0.json")
    assert other.exists()


def test_an_older_record_is_kept_aside(make_record: MakeRecord, tmp_path: Path) -> None:
    path = tmp_path / "r0.json"
    old, new = make_record(), make_record(source_sha256="b" * 64)
    write_record(path, old)
    write_record(path, new)
    assert read_record(path) == new
    (aside,) = (tmp_path / "superseded").iterdir()
    assert read_record(aside) == old


def test_older_records_of_one_moment_are_all_kept(make_record: MakeRecord, tmp_path: Path) -> None:
    path = tmp_path / "r0.json"
    records = [make_record(instances_per_s=speed) for speed in (1.0, 2.0, 3.0, 4.0)]
    for record in records:
        write_record(path, record)
        os.utime(path, ns=(10**18, 10**18))
    aside = [read_record(one) for one in (tmp_path / "superseded").iterdir()]
    assert sorted([*aside, read_record(path)], key=lambda one: one.instances_per_s or 0) == records


def test_a_record_that_cannot_be_put_aside_leaves_nothing_in_its_name(
    make_record: MakeRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r0.json"
    write_record(path, make_record())

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OutputError, match="Input/output error"):
        write_record(path, make_record(instances_per_s=1.0))
    assert not list((tmp_path / "superseded").iterdir())
    assert read_record(path) == make_record()


@pytest.mark.parametrize(
    ("status", "answers"),
    [
        ("ok", True),
        ("wrong_result", True),
        ("oom", True),
        ("timeout", True),
        ("crash", False),
        ("unsupported", False),
    ],
)
def test_which_statuses_answer(
    make_record: MakeRecord, make_spec: Callable[..., TrialSpec], status: str, answers: bool
) -> None:
    assert make_record(status=status).answers(make_spec(), "a" * 64) is answers


def test_other_code_round_or_work_is_not_answered(
    make_record: MakeRecord, make_spec: Callable[..., TrialSpec]
) -> None:
    record = make_record()
    assert not record.answers(make_spec(), "b" * 64)
    assert not record.answers(make_spec(round=1), "a" * 64)
    assert not record.answers(make_spec(hidden_size=99), "a" * 64)
    assert record.answers(make_spec(data_root="elsewhere", command="typed otherwise"), "a" * 64)


def test_another_limit_asks_again_only_where_the_limit_ended_the_trial(
    make_record: MakeRecord, make_spec: Callable[..., TrialSpec]
) -> None:
    roomy = make_spec(limits=Limits(time_s=999.0))
    assert make_record().answers(roomy, "a" * 64)
    assert not make_record(status="timeout").answers(roomy, "a" * 64)
    assert not make_record(status="oom").answers(roomy, "a" * 64)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be written .* choose another results_dir"):
        check_writable(tmp_path / "file" / "below")
    check_writable(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_record_has_one_path_for_bench_and_pipeline(
    make_spec: Callable[..., TrialSpec], tmp_path: Path
) -> None:
    pattern = str(path_of(tmp_path, "{trial}", "{round}"))
    assert pattern == f"{tmp_path}/raw/{{trial}}/r{{round}}.json"
    spec = make_spec(round=2)
    planned = PlannedTrial(spec, {}, (), rounds=3)
    assert planned.record_paths(tmp_path)[2] == record_path(tmp_path, spec)
    assert pattern.format(trial=spec.trial_id, round=2) == str(record_path(tmp_path, spec))
