"""Reuse of records: only those of the current code, data, machine and versions."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynbatch
from dynbatch.harness.contracts.home import SPLITS, compute_checksum
from dynbatch.harness.errors import RecordError
from dynbatch.harness.machine.facts import describe_machine
from dynbatch.harness.measuring.processes.launch import record_unmeasured
from dynbatch.harness.records import reuse
from dynbatch.harness.records.cross_check import check_comparable
from dynbatch.harness.records.record import Record
from dynbatch.harness.records.reuse import OwnData, Present, are_same_versions
from dynbatch.harness.records.tidy import build_frame
from dynbatch.harness.trials.sources import hash_trial_source, read_harness_versions
from dynbatch.harness.trials.spec import Timing, TrialSpec
from dynbatch.harness.trials.workload import load_workload
from tests.support.corpora import write
from tests.support.measured import MakeSpec
from tests.support.records import MakeRecord

TREES = ("(1 (0 a) (2 b))\n(3 (1 c) (1 (0 a) (2 d)))\n", "(4 (0 a) (2 b))\n(1 (1 b) (1 c))\n")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Return two data roots with different trees."""
    for root, text in zip(("first", "second"), TREES, strict=True):
        write(tmp_path / root / "sst", dict.fromkeys(SPLITS, text), ".txt")
    return tmp_path / "first", tmp_path / "second"


@pytest.fixture
def own(make_spec: MakeSpec, folders: tuple[Path, Path]) -> MakeSpec:
    """Return a function that builds a trial on files without checksums, in the first data root."""

    def make(root: Path = folders[0], sha256: Any = None, **changes: Any) -> TrialSpec:
        options = {"vocab_modulo": 0, "sha256": sha256}
        data = {"model": "tree_lstm", "dataset": "sst", "dataset_options": options}
        return make_spec(**(data | {"data_root": str(root)} | changes))

    return make


@pytest.fixture
def measured_now(make_record: MakeRecord) -> MakeRecord:
    """Return a function that builds the record of a trial measured now, with given changes."""

    def make(spec: TrialSpec, **changes: Any) -> Record:
        present = {
            "source_sha256": hash_trial_source(spec),
            "machine": describe_machine().to_dict(),
            "versions": read_harness_versions(),
            "inputs_sha256": load_workload(spec).inputs_sha256,
        }
        return make_record(spec, **(present | changes))

    return make


def test_record_measured_in_current_environment_is_kept(
    own: MakeSpec, make_spec: MakeSpec, measured_now: MakeRecord
) -> None:
    for spec in (own(), make_spec()):
        record = measured_now(spec)
        assert Present().is_kept(record, spec)
        assert Present().find_change(record, spec) is None
    assert not Present().is_kept(None, own())


def test_a_record_of_another_data_root_is_not_kept(
    own: MakeSpec, measured_now: MakeRecord, folders: tuple[Path, Path]
) -> None:
    ours, theirs = (own(root) for root in folders)
    assert ours.trial_id == theirs.trial_id
    assert not Present().is_kept(measured_now(ours), theirs)
    assert "data" in (Present().find_change(measured_now(ours), theirs) or "")


def test_a_record_of_a_file_that_was_edited_is_not_kept(
    own: MakeSpec, measured_now: MakeRecord, folders: tuple[Path, Path]
) -> None:
    record = measured_now(own())
    path = folders[0] / "sst" / "train.txt"
    path.write_text(path.read_text().replace("(0 a)", "(1 a)"))
    assert not Present().is_kept(record, own())
    path.unlink()
    assert not Present().is_kept(record, own())


def test_only_the_mini_batches_count(own: MakeSpec) -> None:
    """The hash covers only the trial's mini-batches; another seed draws different ones."""
    data = OwnData()
    hashes = [data.hash_inputs(own(seed=seed)) for seed in (0, 1)]
    assert hashes[0] != hashes[1]
    assert hashes[0] == load_workload(own()).inputs_sha256


def test_files_with_checksums_are_not_read(
    own: MakeSpec, measured_now: MakeRecord, folders: tuple[Path, Path]
) -> None:
    files = {split: folders[0] / "sst" / f"{split}.txt" for split in SPLITS}
    checksums = {split: compute_checksum(None, path.read_bytes()) for split, path in files.items()}
    pinned = own(sha256=checksums)
    record = measured_now(pinned)
    shutil.rmtree(folders[0])
    assert Present().is_kept(record, pinned)
    assert OwnData().hash_inputs(pinned) is None


def test_files_are_read_unless_all_have_checksums(own: MakeSpec, make_spec: MakeSpec) -> None:
    assert OwnData().hash_inputs(make_spec()) is None
    assert OwnData().hash_inputs(own(sha256={"train": "0" * 64})) is not None


@pytest.mark.parametrize(
    "changed",
    [
        {"cpu": "Another CPU"},
        {"n_cpus": 4096},
        {"usable_cpus": list(range(999))},
        {"memory_bytes": 1 << 20},
        {"os": "Other 1.0"},
        {"governor": "powersave of another"},
    ],
)
def test_a_record_of_another_machine_is_not_kept(
    make_spec: MakeSpec, measured_now: MakeRecord, changed: dict[str, Any]
) -> None:
    spec = make_spec()
    record = measured_now(spec, machine=describe_machine().to_dict() | changed)
    assert not Present().is_kept(record, spec)
    assert Present(measures_here=False).is_kept(record, spec)


@pytest.mark.parametrize(("before", "now"), [(None, 0.5), (0.5, None), (0.5, 1.5)])
def test_a_record_under_another_cpu_quota_is_not_kept(
    make_spec: MakeSpec,
    measured_now: MakeRecord,
    monkeypatch: pytest.MonkeyPatch,
    before: float | None,
    now: float | None,
) -> None:
    spec, machine = make_spec(), replace(describe_machine(), cpu_quota=before)
    record = measured_now(spec, machine=machine.to_dict())
    monkeypatch.setattr(reuse, "describe_machine", lambda: replace(machine, cpu_quota=now))
    assert Present().find_change(record, spec) == f"cpu_quota was {before}, now {now}"


@pytest.mark.parametrize(
    ("version", "other", "is_same"),
    [
        ("2.13.0", "2.13.0", True),
        ("2.13.0+cu130", "2.13.0", True),
        ("2.13.0", "2.13.0+cpu", True),
        ("2.13.0+cu130", "2.13.0+cpu", False),
        ("2.13.0+cu130", "2.13.1", False),
        ("2.13.0", "2.13.0rc1", False),
    ],
)
def test_local_labels_count_only_if_both_have_one(version: str, other: str, is_same: bool) -> None:
    assert are_same_versions(version, other) == is_same


def test_record_of_other_version_is_not_kept(make_spec: MakeSpec, measured_now: MakeRecord) -> None:
    spec = make_spec()
    for name in ("numpy", "python"):
        record = measured_now(spec, versions=read_harness_versions() | {name: "0.1"})
        assert f"{name} was 0.1" in (Present().find_change(record, spec) or "")
    facts = {"dynet_build": "source", "no_such_package": "1.0", "pandas": np.__version__ + "x"}
    others = measured_now(spec, versions=read_harness_versions() | {"no_such_package": "1.0"})
    assert Present().is_kept(others, spec)
    unlike = measured_now(spec, versions=read_harness_versions() | facts)
    assert "pandas" in (Present().find_change(unlike, spec) or "")


def test_versions_are_the_interpreters_own(make_spec: MakeSpec, measured_now: MakeRecord) -> None:
    spec = make_spec(python=sys.executable)
    assert Present().is_kept(measured_now(spec), spec)
    unlike = measured_now(spec, versions=read_harness_versions() | {"numpy": "0.1"})
    assert not Present().is_kept(unlike, spec)


LIST = """echo '{"numpy": "%s"}'"""


@pytest.mark.parametrize(
    ("script", "is_kept"),
    [
        (f"echo a banner\n{LIST % np.__version__}", True),
        (f"echo a banner\n{LIST % '0.1'}", False),
        ("echo no list", True),
        ("exit 0", True),
        ("exit 1", True),
    ],
)
def test_versions_are_read_whatever_an_interpreter_prints(
    make_spec: MakeSpec,
    measured_now: MakeRecord,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    is_kept: bool,
) -> None:
    """Versions that cannot be read are no reason to measure again: the trial reports the error."""
    (tmp_path / "python").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    spec = make_spec(python="~/python")
    assert Present().is_kept(measured_now(spec), spec) == is_kept


def test_remains_of_a_package_have_no_version(
    make_spec: MakeSpec, measured_now: MakeRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_removed-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert Present().is_kept(measured_now(make_spec()), make_spec())


def test_unmeasured_record_on_own_data_is_kept_only_for_that_data(
    own: MakeSpec, tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    record = record_unmeasured(own(), tmp_path / "r0.json", "timeout", "made up")
    assert Present().is_kept(record, own())
    assert not Present().is_kept(record, own(folders[1]))


def test_unlike_inputs_share_no_table(
    own: MakeSpec, measured_now: MakeRecord, folders: tuple[Path, Path]
) -> None:
    systems = zip(folders, ("one", "other"), strict=True)
    records = [measured_now(own(root, system=system)) for root, system in systems]
    with pytest.raises(RecordError, match="ran different inputs of sst"):
        check_comparable(records)
    rows = build_frame(records)
    with pytest.raises(RecordError, match="ran different inputs of sst"):
        dynbatch.ratios(rows, "one")
    for compare in (dynbatch.numbers, dynbatch.select_fastest):
        with pytest.raises(RecordError, match="ran different inputs of sst"):
            compare(rows)


def test_rows_of_unlike_machines_share_no_table(own: MakeSpec, measured_now: MakeRecord) -> None:
    there = describe_machine().to_dict() | {"cpu": "Another CPU"}
    records = [measured_now(own(system="one")), measured_now(own(system="other"), machine=there)]
    rows = build_frame(records)
    for compare in (dynbatch.numbers, dynbatch.select_fastest):
        with pytest.raises(RecordError, match="different cpu"):
            compare(rows)
    assert len(dynbatch.numbers(rows, by=["system", "cpu"])) == 2


def test_like_inputs_share_a_table(own: MakeSpec, measured_now: MakeRecord) -> None:
    records = [measured_now(own(system=name, seed=seed)) for name in "ab" for seed in (0, 1)]
    check_comparable(records)
    timings = (Timing(n_instances=n) for n in (2, 4))
    check_comparable([measured_now(own(timing=timing)) for timing in timings])
    assert len(dynbatch.numbers(build_frame(records))) == 4
