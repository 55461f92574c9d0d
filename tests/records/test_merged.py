"""Results of several machines: by kind, and refused by name where they contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.commands import collect
from harness.errors import RecordError
from harness.records.merged import kind_of, merged
from harness.records.record import Record, path_of, write_record
from harness.records.stored import kinds_in
from harness.trials.spec import TrialSpec

MakeRecord = Callable[..., Record]
GIB = 2**30
MACHINE = {"cpu": "Some CPU", "usable_cpus": [0, 1], "gpus": [], "memory_bytes": 8 * GIB}
OTHER = MACHINE | {"cpu": "Other CPU"}


def write(folder: Path, *records: Record) -> Path:
    for record in records:
        write_record(path_of(folder, record.trial_id, record.trial.round), record)
    return folder


def test_one_trial_of_two_kinds_is_two_records(make_record: MakeRecord, tmp_path: Path) -> None:
    ours, theirs = make_record(machine=MACHINE), make_record(machine=OTHER)
    places = [write(tmp_path / "a", ours), write(tmp_path / "b", theirs)]
    found = merged(places)
    assert {kind: list(held.records) for kind, held in found.items()} == {
        kind_of(ours): [ours],
        kind_of(theirs): [theirs],
    }
    assert kind_of(ours).startswith("Some_CPU-2_cpus-")
    assert list(merged([*places, places[0]]).values()) == list(found.values())


def test_nodes_of_one_kind_are_one_though_their_memory_differs_by_pages(
    make_record: MakeRecord, make_spec: Callable[..., TrialSpec], tmp_path: Path
) -> None:
    ours = make_record(machine=MACHINE | {"hostname": "node1"})
    fewer = MACHINE | {"hostname": "node2", "memory_bytes": 8 * GIB - 12288}
    theirs = make_record(make_spec(hidden_size=9), machine=fewer)
    found = merged([write(tmp_path / "a", ours), write(tmp_path / "b", theirs)])
    (held,) = found.values()
    assert {record.trial_id for record in held.records} == {ours.trial_id, theirs.trial_id}


@pytest.mark.parametrize("machine", [MACHINE, OTHER])
def test_other_inputs_are_a_contradiction_on_whatever_machine(
    make_record: MakeRecord, tmp_path: Path, machine: dict[str, object]
) -> None:
    ours = make_record(machine=MACHINE, inputs_sha256="a" * 64)
    theirs = make_record(machine=machine, inputs_sha256="b" * 64)
    places = [write(tmp_path / "a", ours), write(tmp_path / "b", theirs)]
    with pytest.raises(RecordError) as caught:
        merged(places)
    for word in (ours.trial_id, str(places[0]), str(places[1])):
        assert word in str(caught.value)


def test_two_measurements_of_one_kind_are_a_contradiction(
    make_record: MakeRecord, tmp_path: Path
) -> None:
    ours, theirs = (make_record(machine=MACHINE, instances_per_s=n) for n in (1.0, 2.0))
    with pytest.raises(RecordError, match=f"{ours.trial_id}, round 0, which both have"):
        merged([write(tmp_path / "a", ours), write(tmp_path / "b", theirs)])


def test_the_command_packs_a_folder_for_each_kind(
    make_record: MakeRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a", make_record(machine=MACHINE))
    write(tmp_path / "b", make_record(machine=OTHER))
    places = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert collect.main(["--merge", *places, "--pack", str(tmp_path / "all")]) == 0
    assert len(kinds_in(tmp_path / "all")) == 2
    assert not kinds_in(tmp_path / "all" / kinds_in(tmp_path / "all")[0])
    assert "side by side" in capsys.readouterr().err
    assert collect.main(places) == 1, "without --merge they are two unlike records"
    capsys.readouterr()
    assert collect.main(["--merge", *places]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["--status", "--merge"], "--status only looks"),
        (["--status", "a", "b"], "one folder"),
        (["--merge", "a", "--unpack", "b"], "--merge and --unpack do not go together"),
        (["--status", "nowhere"], "cannot be read"),
    ],
)
def test_flags_that_do_not_fit_are_one_line(
    typed: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collect.main(typed) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
