"""Which records may stand in one table, and which are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.errors import RecordError
from harness.records.cross_check import build_of, check_builds, group_of, latest_builds
from harness.records.record import Record
from harness.trials.spec import TrialSpec

MakeRecord = Callable[..., Record]
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
