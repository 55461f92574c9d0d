"""Checks across records: contradicted ones have no number, and only similar ones share a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.errors import RecordError
from dynbatch.harness.records.cross_check import (
    check_builds,
    cross_check_records,
    cross_check_rounds,
    find_other_fingerprints,
    hash_build,
    hash_group,
    select_latest_builds,
)
from dynbatch.harness.records.fingerprint import Fingerprint, find_difference
from dynbatch.harness.records.record import Record
from tests.support.records import MakeRecord, plain_record, write_results


def test_rounds_stay_with_their_trials() -> None:
    trials = [(plain_record(0), None), (), (plain_record(1),)]
    assert cross_check_rounds(trials) == trials


LOSSES = (10.0, 20.0)
SKETCHES = {
    "outputs": ((4.0, 1.0, -2.0), (5.0, 0.5, 3.0)),
    "gradient of W": ((2.0, 0.1, -1.5), (3.0, 2.5, 0.0)),
}


def fingerprint(workload: str = "w", **changes: Any) -> Fingerprint:
    values = {"losses": LOSSES, "sketches": SKETCHES, "pass_losses": (30.0, 29.0)}
    return Fingerprint(workload=workload, **(values | changes))


WRONG = fingerprint(sketches=SKETCHES | {"gradient of W": ((2.0, 0.1, -1.5), (3.0, 2.503, 0.0))})


def make(
    system: str, framework: str, found: Fingerprint | None, round_: int = 0, **changes: Any
) -> Record:
    adapter = f"dynbatch.systems.{framework}.{system}"
    return plain_record(round_, {"fingerprint": found, **changes}, system=system, adapter=adapter)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"losses": (10.0, 20.001)}, None),  # rounding
        ({"losses": (10.0, 20.01)}, "the loss of mini-batch 1 by 0.0005"),
        ({"losses": (10.0,)}, None),
        ({"sketches": {"outputs": SKETCHES["outputs"]}}, None),  # inference has no gradients
        ({"sketches": WRONG.sketches}, "gradient of W of mini-batch 1 by 0.001"),
        ({"sketches": {"outputs": ((4.0, -1.0, -2.0),)}}, "outputs of mini-batch 0 by 0.5"),
        ({"pass_losses": (30.0, 29.1)}, "the loss of a pass by 0.0034"),
        ({"pass_losses": (30.0, 29.0, 28.0)}, None),
    ],
)
def test_a_difference_beyond_rounding_is_named(changes: Any, words: str | None) -> None:
    found = find_difference(fingerprint(**changes), fingerprint())
    assert (found and str(found)) == words


def test_zeros_are_equal_and_no_number_differs() -> None:
    zeros = fingerprint(losses=(0.0,), sketches={"outputs": ((0.0, 0.0, 0.0),)})
    assert find_difference(zeros, zeros) is None
    assert find_difference(fingerprint(losses=(float("nan"), 20.0)), fingerprint()) is not None


def test_three_frameworks_outvote_one() -> None:
    right = [make("a", "on_core", fingerprint()), make("b", "on_torch", fingerprint())]
    wrong = make("c", "on_dynet", WRONG)
    shown = cross_check_records([*right, wrong])
    assert shown[:2] == right
    assert (shown[2].status, wrong.status) == ("wrong_result", "ok")
    assert shown[2].reason == (
        "differs from the median of on_core, on_dynet, on_torch:"
        " gradient of W of mini-batch 1 by 0.001"
    )


def test_first_rounds_are_compared_with_first_rounds() -> None:
    """The verification in first rounds makes one more update before the passes start."""
    frameworks = ("on_core", "on_torch", "on_dynet")
    first, later = fingerprint(pass_losses=(30.0, 29.0)), fingerprint(pass_losses=(29.0, 28.1))
    records = [
        make(f"a{k}", framework, later if round_ else first, round_=round_)
        for k, framework in enumerate(frameworks)
        for round_ in (0, 1, 2)
    ]
    assert cross_check_records(records) == records
    odd = make("odd", "on_jax", first, round_=1)
    (shown,) = cross_check_records([*records, odd])[-1:]
    assert "the loss of a pass by 0.03" in (shown.reason or "")


def test_presets_of_one_engine_are_one_vote() -> None:
    """Several presets with the same error do not outvote another framework."""
    wrong = [make(name, "on_core", WRONG) for name in ("a", "b", "c", "d")]
    shown = cross_check_records([*wrong, make("e", "on_torch", fingerprint())])
    assert {one.status for one in shown} == {"wrong_result"}
    reason = str(shown[0].reason)
    assert reason.startswith("a and e differ (gradient of W of mini-batch 1 by 0.001); measure")


def test_whom_the_reference_confirmed_is_right() -> None:
    proved = make("e", "on_torch", fingerprint(proved=True))
    shown = cross_check_records([make("a", "on_core", WRONG), make("b", "on_dynet", WRONG), proved])
    assert [one.status for one in shown] == ["wrong_result"] * 2 + ["ok"]


def test_only_equal_workloads_are_compared() -> None:
    """Records without fingerprints, which are older, and failed records are ignored."""
    records = [
        make("a", "on_core", fingerprint()),
        make("b", "on_torch", WRONG.model_copy(update={"workload": "another"})),
        make("c", "on_dynet", None),
        make("d", "on_jax", WRONG, status="wrong_result"),
    ]
    assert cross_check_records(records) == records


def test_records_of_the_same_workload_are_found(tmp_path: Path) -> None:
    failed = {"fingerprint": fingerprint(), "status": "crash"}
    records = [plain_record(changes=failed, system="failed")]
    records += [
        plain_record(changes={"fingerprint": found}, **spec)
        for found, spec in (
            (fingerprint(), {"system": "own"}),
            (fingerprint(), {"system": "other"}),
            (WRONG, {"system": "third", "policy": "depth"}),
            (fingerprint("another"), {"system": "other_options", "seed": 0}),
            (None, {"system": "older"}),
            (fingerprint(), {"system": "larger", "batch_size": 4}),
        )
    ]
    write_results(tmp_path, records, [])
    own = records[1].trial_id
    assert find_other_fingerprints(tmp_path / "raw", own, "w") == [fingerprint(), WRONG]
    assert find_other_fingerprints(tmp_path / "nowhere", own, "w") == []


MACHINE = {"cpu": "Some CPU", "usable_cpus": [0, 1], "gpus": []}


def test_groups_keep_unlike_machines_and_threads_apart(make_record: MakeRecord) -> None:
    base = make_record()
    unlike = [
        make_record(machine=MACHINE | {"cpu": "Other CPU"}),
        make_record(machine=MACHINE | {"usable_cpus": [0]}),
        make_record(machine=MACHINE | {"governor": "powersave"}),
        make_record(machine=MACHINE | {"memory_bytes": 2**30}),
        plain_record(threads=2),
        make_record(versions=base.versions | {"harness": "2"}),
        make_record(versions=base.versions | {"numpy": "3.0"}),
    ]
    assert len({hash_group(record) for record in [base, *unlike]}) == len(unlike) + 1
    alike = [
        make_record(machine=MACHINE | {"hostname": "x", "gpus": [{"name": "G", "driver": "1"}]}),
        make_record(machine=MACHINE | {"memory_bytes": 3 * 2**12}),  # pages
        plain_record(2, hidden_size=9),
        make_record(versions=base.versions | {"fake": "2.0"}),
    ]
    assert {hash_group(record) for record in alike} == {hash_group(base)}
    assert hash_build(alike[-1]) != hash_build(base)


def test_two_builds_of_one_system_are_refused() -> None:
    base = plain_record()
    check_builds([base, plain_record(hidden_size=9), plain_record(system="other")])
    for change, named in (
        ({"source_sha256": "b" * 64}, "measured code"),
        ({"versions": base.versions | {"fake": "2.0"}}, "version of fake"),
    ):
        newer = change | {"started_at": "2026-01-02T00:00:00+00:00"}
        records = [base, plain_record(changes=newer, hidden_size=9)]
        with pytest.raises(RecordError, match=rf"fake was measured with two builds.*{named}"):
            check_builds(records)
        assert select_latest_builds(records) == records[1:]
        failed = change | {"status": "crash"}
        check_builds([base, plain_record(changes=failed, hidden_size=9)])
