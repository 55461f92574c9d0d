"""Records seen together: contradicted ones have no number, uneven cores are warned of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from harness.records.cross_check import rounds_seen_together, seen_together
from harness.records.fingerprint import Fingerprint
from harness.records.record import Record
from harness.trials.spec import TrialSpec

MakeSpec = Callable[..., TrialSpec]
MakeRecord = Callable[..., Record]


@pytest.fixture
def make(make_spec: MakeSpec, make_record: MakeRecord) -> Callable[..., Record]:
    def record(round_: int = 0, threads: int = 1, **changes: object) -> Record:
        return make_record(make_spec(round=round_, threads=threads), **changes)

    return record


def warnings_of(records: Sequence[Record | None]) -> dict[int, tuple[str, ...]]:
    seen = enumerate(seen_together(records))
    return {k: one.warnings for k, one in seen if one is not None and one.warnings}


@pytest.mark.parametrize(
    ("rates", "uneven"),
    [
        ((1000.0, 1010.0, 990.0), []),
        ((1000.0, 1010.0, 880.0, 905.0, 990.0), [2]),
        ((1000.0, 1010.0, 1115.0, 1005.0, 990.0), [2]),
        ((700.0, 1000.0), [0, 1]),
        ((1000.0,), []),
    ],
)
def test_a_core_unlike_those_beside_it_is_warned_of(
    make: Callable[..., Record], rates: Sequence[float], uneven: list[int]
) -> None:
    records = [make(k, core_rate_per_s=rate) for k, rate in enumerate(rates)]
    assert warnings_of(records) == {k: ("uneven_core",) for k in uneven}


def test_records_of_two_tables_are_not_compared(make: Callable[..., Record]) -> None:
    fast = [make(k, core_rate_per_s=1000.0) for k in range(3)]
    slow = [make(k, threads=2, core_rate_per_s=700.0) for k in range(3)]
    assert warnings_of([*fast, *slow]) == {}


def test_records_without_rates_are_left_alone(make: Callable[..., Record]) -> None:
    records = [make(), None, make(1, core_rate_per_s=1000.0), make(2)]
    assert seen_together(records) == records


def test_a_warning_is_given_once(make: Callable[..., Record]) -> None:
    known = make(warnings=("busy", "uneven_core"), core_rate_per_s=700.0)
    others = [make(k, core_rate_per_s=1000.0) for k in (1, 2)]
    assert warnings_of([known, *others]) == {0: ("busy", "uneven_core")}


def test_what_is_contradicted_has_no_number(make_spec: MakeSpec, make_record: MakeRecord) -> None:
    specs = [make_spec(system=name, adapter=f"systems.on_{name}.x") for name in ("torch", "jax")]
    found = [Fingerprint(workload="w", losses=(loss,), sketches={}) for loss in (1.0, 2.0)]
    records = [make_record(spec, fingerprint=f) for spec, f in zip(specs, found, strict=True)]
    assert [one.status for one in seen_together(records) if one] == ["wrong_result"] * 2


def test_rounds_stay_with_their_trials(make: Callable[..., Record]) -> None:
    one, two = make(), make(1)
    trials = [(one, None), (), (two,)]
    assert rounds_seen_together(trials) == trials
