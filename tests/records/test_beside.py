"""Records seen together: contradicted ones have no number, slow cores are warned of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from harness.records.beside import rounds_seen_together, seen_together
from harness.records.core_rates import rate_warnings
from harness.records.fingerprint import Fingerprint
from harness.records.record import Record
from harness.trials.spec import TrialSpec

MakeSpec = Callable[..., TrialSpec]
MakeRecord = Callable[..., Record]
Rates = tuple[float, float] | None


@pytest.fixture
def make(make_spec: MakeSpec, make_record: MakeRecord) -> Callable[..., Record]:
    def record(rates: Rates, round_: int = 0, threads: int = 1, **changes: object) -> Record:
        spec = make_spec(round=round_, threads=threads)
        return make_record(spec, core_rates_per_s=rates, **changes)

    return record


def slow_ones(records: Sequence[Record | None]) -> list[int]:
    seen = seen_together(records)
    return [k for k, one in enumerate(seen) if one is not None and one.warnings]


@pytest.mark.parametrize(
    ("rates", "warnings"),
    [
        ((1000.0, 1000.0), ()),
        ((1000.0, 901.0), ()),
        ((1000.0, 899.0), ("uneven_core",)),
        ((899.0, 1000.0), ("uneven_core",)),
    ],
)
def test_a_core_that_changes_is_warned_of(
    rates: tuple[float, float], warnings: tuple[str, ...]
) -> None:
    assert rate_warnings(rates) == warnings


def test_a_core_slower_than_beside_most_is_warned_of(make: Callable[..., Record]) -> None:
    rates = [(1000.0, 1010.0), (990.0, 1000.0), (895.0, 880.0), (910.0, 905.0), (1100.0, 1090.0)]
    assert slow_ones([make(one, k) for k, one in enumerate(rates)]) == [2]


def test_the_slower_of_both_rates_counts(make: Callable[..., Record]) -> None:
    rates = [(1000.0, 1000.0), (1000.0, 1000.0), (960.0, 880.0)]
    assert slow_ones([make(one, k) for k, one in enumerate(rates)]) == [2]


def test_records_of_two_tables_are_not_compared(make: Callable[..., Record]) -> None:
    fast = [make((1000.0, 1000.0), k) for k in range(3)]
    slow = [make((700.0, 700.0), k, threads=2) for k in range(3)]
    assert slow_ones([*fast, *slow]) == []


def test_records_without_rates_are_left_alone(make: Callable[..., Record]) -> None:
    records = [make(None), None, make((1000.0, 1000.0), 1), make(None, 2)]
    assert seen_together(records) == records


def test_a_warning_is_given_once(make: Callable[..., Record]) -> None:
    known = make((700.0, 1000.0), warnings=("busy", "uneven_core"))
    others = [make((1000.0, 1000.0), k) for k in (1, 2)]
    seen = seen_together([known, *others])
    assert seen[0] is not None
    assert seen[0].warnings == ("busy", "uneven_core")


def test_what_is_contradicted_has_no_number(make_spec: MakeSpec, make_record: MakeRecord) -> None:
    specs = [make_spec(system=name, adapter=f"systems.on_{name}.x") for name in ("torch", "jax")]
    found = [Fingerprint(workload="w", losses=(loss,), sketches={}) for loss in (1.0, 2.0)]
    records = [make_record(spec, fingerprint=f) for spec, f in zip(specs, found, strict=True)]
    assert [one.status for one in seen_together(records) if one] == ["wrong_result"] * 2


def test_rounds_stay_with_their_trials(make: Callable[..., Record]) -> None:
    one, two = make((1000.0, 1000.0)), make((1000.0, 1000.0), 1)
    trials = [(one, None), (), (two,)]
    assert rounds_seen_together(trials) == trials
