"""Records seen together: contradicted ones have no number, slow machines are warned of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from harness.measuring.findings import Findings
from harness.records.beside import rounds_seen_together, seen_together
from harness.records.fingerprint import Fingerprint
from harness.records.machine_rates import rate_warnings
from harness.records.record import Record
from harness.trials.spec import TrialSpec

MakeSpec = Callable[..., TrialSpec]
MakeRecord = Callable[..., Record]
Rates = tuple[float, float]
CORE, MEMORY = "core_rates_per_s", "memory_rates_bytes_per_s"
EVEN = (1000.0, 1000.0)


@pytest.fixture
def make(make_spec: MakeSpec, make_record: MakeRecord) -> Callable[..., Record]:
    def record(round_: int = 0, threads: int = 1, **changes: object) -> Record:
        return make_record(make_spec(round=round_, threads=threads), **changes)

    return record


def warnings_of(records: Sequence[Record | None]) -> dict[int, tuple[str, ...]]:
    seen = enumerate(seen_together(records))
    return {k: one.warnings for k, one in seen if one is not None and one.warnings}


@pytest.mark.parametrize(
    ("core", "memory", "warnings"),
    [
        (None, None, ()),
        (EVEN, EVEN, ()),
        ((1000.0, 901.0), (1000.0, 751.0), ()),
        ((1000.0, 899.0), (1000.0, 751.0), ("uneven_core",)),
        ((899.0, 1000.0), EVEN, ("uneven_core",)),
        (EVEN, (749.0, 1000.0), ("uneven_memory",)),
        ((500.0, 1000.0), (1000.0, 500.0), ("uneven_core", "uneven_memory")),
    ],
)
def test_a_machine_that_changes_is_warned_of(
    core: Rates | None, memory: Rates | None, warnings: tuple[str, ...]
) -> None:
    found = Findings(core_rates_per_s=core, memory_rates_bytes_per_s=memory)
    assert rate_warnings(found) == warnings


@pytest.mark.parametrize(
    ("name", "rates", "slow"),
    [
        (CORE, [(1000.0, 1010.0), (990.0, 1000.0), (895.0, 880.0), (910.0, 905.0)], [2]),
        (CORE, [EVEN, EVEN, (960.0, 880.0)], [2]),  # the slower of both counts
        (CORE, [EVEN, EVEN, (2000.0, 2000.0)], []),
        (MEMORY, [EVEN, (760.0, 760.0), EVEN, (740.0, 740.0), EVEN], [3]),
    ],
)
def test_a_machine_slower_than_beside_most_is_warned_of(
    make: Callable[..., Record], name: str, rates: list[Rates], slow: list[int]
) -> None:
    records = [make(k, **{name: one}) for k, one in enumerate(rates)]
    warning = {CORE: "uneven_core", MEMORY: "uneven_memory"}[name]
    assert warnings_of(records) == {k: (warning,) for k in slow}


def test_records_of_two_tables_are_not_compared(make: Callable[..., Record]) -> None:
    fast = [make(k, **{CORE: EVEN}) for k in range(3)]
    slow = [make(k, threads=2, **{CORE: (700.0, 700.0)}) for k in range(3)]
    assert warnings_of([*fast, *slow]) == {}


def test_records_without_rates_are_left_alone(make: Callable[..., Record]) -> None:
    records = [make(), None, make(1, **{CORE: EVEN}), make(2)]
    assert seen_together(records) == records


def test_a_warning_is_given_once(make: Callable[..., Record]) -> None:
    known = make(warnings=("busy", "uneven_core"), **{CORE: (700.0, 1000.0)})
    others = [make(k, **{CORE: EVEN}) for k in (1, 2)]
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
