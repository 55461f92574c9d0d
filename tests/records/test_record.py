"""Records: validated both ways, written whole or not at all, never measured twice."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.commands import collect
from harness.errors import ConfigError, RecordError
from harness.records.comparable import build_of, check_builds, group_of, latest_builds
from harness.records.record import (
    Record,
    find_record,
    read_record,
    record_path,
    trial_of,
    write_record,
)
from harness.records.whole_files import check_writable, drop_leftovers
from harness.trials.spec import Limits, TrialSpec

MakeRecord = Callable[..., Record]


@pytest.fixture
def make_record(make_spec: Callable[..., TrialSpec]) -> MakeRecord:
    def make(spec: TrialSpec | None = None, **changes: Any) -> Record:
        chosen = spec or make_spec()
        values: dict[str, Any] = {
            "status": "ok",
            "trial": trial_of(chosen),
            "trial_id": chosen.trial_id,
            "instances_per_s": 100.0,
            "samples_s": (0.5, 0.25),
            "n_mini_batches": 2,
            "n_instances": 4,
            "source_sha256": "a" * 64,
            "machine": {"cpu": "Some CPU", "usable_cpus": [0, 1], "gpus": []},
            "versions": {"python": "3.11", "numpy": "2.0", "harness": "1", "fake": "1.0"},
            "config": chosen.to_dict(),
            "started_at": "2026-01-01T00:00:00+00:00",
            "finished_at": "2026-01-01T00:00:01+00:00",
        }
        return Record(**(values | changes))

    return make


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
            "peak_memory_bytes",
            "baseline_memory_bytes",
            "check",
            "warnings",
            "inputs_sha256",
        ),
        *("machine", "versions", "config", "source_sha256", "n_mini_batches", "n_instances"),
        *("started_at", "finished_at", "command"),
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


def test_identity_covers_the_work_and_nothing_else(make_spec: Callable[..., TrialSpec]) -> None:
    spec = make_spec()
    changes: list[dict[str, Any]] = [
        *({"hidden_size": 4}, {"seed": 1}, {"mode": "infer"}, {"learning_rate": 1.0}),
        *({"system_options": {"a": 1}}, {"model_options": {"a": 1}}, {"split": "dev"}),
        *({"policy": "depth"}, {"threads": 2}, {"embedding_size": 7}),
    ]
    ids = [make_spec(**change).trial_id for change in changes]
    assert len({spec.trial_id, *ids}) == len(changes) + 1
    same: list[dict[str, Any]] = [
        *({"round": 3}, {"command": "x"}, {"data_root": "x"}, {"cache_dir": None}),
        {"embedding_size": spec.hidden_size},
    ]
    assert {make_spec(**change).trial_id for change in same} == {spec.trial_id}


def test_a_trial_id_is_safe_in_paths(make_spec: Callable[..., TrialSpec], tmp_path: Path) -> None:
    spec = make_spec(system="a/b c:d")
    assert record_path(tmp_path, spec).parent.parent == tmp_path / "raw"
    assert TrialSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    with pytest.raises(ConfigError, match="no colour"):
        TrialSpec.from_dict(spec.to_dict() | {"colour": 1})


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be written .* choose another results_dir"):
        check_writable(tmp_path / "file" / "below")
    check_writable(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


MACHINE = {"cpu": "Some CPU", "usable_cpus": [0, 1], "gpus": []}


def test_groups_keep_unlike_machines_and_threads_apart(
    make_record: MakeRecord, make_spec: Callable[..., TrialSpec]
) -> None:
    base = make_record()
    unlike = [
        make_record(machine=MACHINE | {"cpu": "Other CPU"}),
        make_record(machine=MACHINE | {"usable_cpus": [0]}),
        make_record(machine=MACHINE | {"governor": "powersave"}),
        make_record(make_spec(threads=2)),
        make_record(versions=base.versions | {"harness": "2"}),
        make_record(versions=base.versions | {"numpy": "3.0"}),
    ]
    assert len({group_of(record) for record in [base, *unlike]}) == len(unlike) + 1
    alike = [
        make_record(machine=MACHINE | {"hostname": "x", "gpus": [{"name": "G", "driver": "1"}]}),
        make_record(make_spec(hidden_size=9, round=2)),
        make_record(versions=base.versions | {"fake": "2.0"}),
    ]
    assert {group_of(record) for record in alike} == {group_of(base)}
    assert build_of(alike[-1]) != build_of(base)


def test_two_builds_of_one_system_are_refused(
    make_record: MakeRecord, make_spec: Callable[..., TrialSpec]
) -> None:
    spec = make_spec(hidden_size=9)
    base = make_record()
    check_builds([base, make_record(spec), make_record(make_spec(system="other"))])
    for change, named in (
        ({"source_sha256": "b" * 64}, "measured code"),
        ({"versions": base.versions | {"fake": "2.0"}}, "version of fake"),
    ):
        newer = make_record(spec, started_at="2026-01-02T00:00:00+00:00", **change)
        with pytest.raises(RecordError, match=rf"fake was measured with two builds.*{named}"):
            check_builds([base, newer])
        assert latest_builds([base, newer]) == [newer]
        check_builds([base, make_record(spec, status="crash", **change)])


def test_collect_writes_a_row_per_round(
    make_record: MakeRecord,
    make_spec: Callable[..., TrialSpec],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    raw = tmp_path / "raw"
    for round_ in range(3):
        spec = make_spec(round=round_)
        write_record(record_path(tmp_path, spec), make_record(spec))
        write_record(record_path(tmp_path, spec), make_record(spec))  # one goes to superseded/
    lonely = make_spec(hidden_size=12)
    write_record(record_path(tmp_path, lonely), make_record(lonely, warnings=("busy",)))
    failed = make_spec(hidden_size=16)
    reason = 'killed, "hard"'
    write_record(record_path(tmp_path, failed), make_record(failed, status="oom", reason=reason))
    out = tmp_path / "all.csv"
    assert collect.main([str(raw), "--out", str(out)]) == 0
    header, *rows = out.read_text().splitlines()
    assert len(rows) == 5
    assert header.startswith("group,build,trial_id,system,policy,model,dataset,batch_size")
    assert sum("busy few_rounds" in row for row in rows) == 1
    assert sum("few_rounds" in row for row in rows) == 1
    assert sum('"killed, ""hard"""' in row for row in rows) == 1
    assert capsys.readouterr() == ("", "")


def test_collect_refuses_in_one_line(
    make_record: MakeRecord,
    make_spec: Callable[..., TrialSpec],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert collect.main([str(tmp_path)]) == 1
    assert "no records in" in capsys.readouterr().err
    write_record(record_path(tmp_path, make_spec()), make_record())
    newer = make_spec(hidden_size=12)
    write_record(record_path(tmp_path, newer), make_record(newer, source_sha256="b" * 64))
    assert collect.main([str(tmp_path), "--out", str(tmp_path / "x.csv")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "two builds" in error
    assert not (tmp_path / "x.csv").exists()
    assert collect.main([str(tmp_path), "--latest"]) == 0
