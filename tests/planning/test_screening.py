"""Who is called off after the first rounds: peers far behind the fastest of their point, only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ConfigError
from harness.planning.artefacts import (
    PlannedTrial,
    choices_from,
    measuring_order,
    plan_artefact,
)
from harness.planning.compose import Composer
from harness.planning.grid import expand
from harness.planning.screening import Field, fields_of, why_called_off
from harness.records.record import Record, write_record
from harness.terminal.command_line import experiment_trials
from harness.trials.spec import Screening, TrialSpec
from tests.support.plain_records import plain_record

TWICE = Screening(rounds=2, factor=2.0)
Speeds = dict[str, list[float | None]]  # by system; None: no number


def record_of(system: str, round_: int, speed: float | None) -> Record:
    if speed is None:
        return plain_record(round_, {"status": "timeout", "reason": "made up"}, system=system)
    return plain_record(round_, {"instances_per_s": speed}, system=system)


def why(system: str, speeds: Speeds, screening: Screening = TWICE, round_: int = 2) -> str | None:
    def read_round(name: str, round_: int) -> Record | None:
        return record_of(name, round_, speeds[name][round_]) if speeds[name][round_:] else None

    return Field(screening, system, tuple(speeds)).why_called_off(read_round, round_)


def test_who_is_far_behind_in_each_of_the_first_rounds_is_called_off() -> None:
    speeds: Speeds = {"quick": [100, 110], "slow": [40, 50], "close": [90, 95]}
    assert why("slow", speeds) == (
        "at least 2.2 times as slow as quick in each of the first 2 rounds"
    )
    assert why("close", speeds) is None
    assert why("quick", speeds) is None


def test_one_good_round_is_enough_to_go_on() -> None:
    assert why("slow", {"quick": [100, 100], "slow": [10, 60]}) is None


def test_who_has_no_number_holds_nobody_back() -> None:
    speeds: Speeds = {"failed": [None, None], "alone": [10, 10]}
    assert why("alone", speeds) is None


def test_who_reached_a_limit_once_will_have_no_number_and_is_called_off() -> None:
    speeds: Speeds = {"failed": [None, 15], "late": [15, 15, None], "alone": [10, 10, 10]}
    assert why("failed", speeds, round_=0) is None
    assert why("failed", speeds, round_=1) == "timeout in round 0"
    assert why("late", speeds, round_=2) is None
    assert why("late", speeds, round_=3) == "timeout in round 2"
    assert why("alone", speeds, round_=3) is None


def test_without_records_of_the_first_rounds_all_go_on() -> None:
    assert why("new", {"quick": [100, 100], "new": []}) is None
    assert why("quick", {"quick": [100, 100], "new": []}) is None


@given(
    st.lists(st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=2), min_size=1, max_size=6),
    st.floats(1.0, 10.0),
)
def test_the_fastest_of_any_round_is_never_called_off(
    found: list[list[float]], factor: float
) -> None:
    speeds: Speeds = {f"s{k}": list(rounds) for k, rounds in enumerate(found)}
    screening = Screening(rounds=2, factor=factor)
    for round_ in range(2):
        fastest = max(speeds, key=lambda name: speeds[name][round_] or 0.0)
        assert why(fastest, speeds, screening) is None


def test_trials_run_against_those_of_their_point_that_are_screened_by_one_factor(
    make_spec: Callable[..., TrialSpec],
) -> None:
    def spec(system: str, batch_size: int, screening: Screening | None = TWICE) -> TrialSpec:
        return make_spec(system=system, batch_size=batch_size, screening=screening)

    later = Screening(rounds=3, factor=TWICE.factor)
    specs = [spec("a", 2), spec("b", 2, later), spec("ours", 2, None), spec("a", 4)]
    a, b, ours, other = fields_of([*specs, spec("c", 2, Screening(rounds=2, factor=3.0))])[:4]
    assert a is not None
    assert b is not None
    assert other is not None
    assert ours is None
    assert (a.screening, b.screening) == (TWICE, later)
    assert a.running == b.running == (specs[0].trial_id, specs[1].trial_id)
    assert other.running == (specs[3].trial_id,)


def test_the_first_rounds_are_always_measured(
    make_spec: Callable[..., TrialSpec], make_record: Callable[..., Record], tmp_path: Path
) -> None:
    quick, slow = (make_spec(system=name, screening=TWICE) for name in ("quick", "slow"))
    for spec, samples in ((quick, (0.1, 0.1)), (slow, (0.5, 0.5))):
        for round_ in range(2):
            record = make_record(spec.with_round(round_), samples_s=samples)
            write_record(tmp_path / "raw" / spec.trial_id / f"r{round_}.json", record)
    _, field = fields_of([quick, slow])
    called_off = [why_called_off(field, round_, tmp_path) is not None for round_ in range(4)]
    assert called_off == [False, False, True, True]
    assert why_called_off(None, 5, tmp_path) is None


def test_a_screening_changes_neither_name_nor_work(make_spec: Callable[..., TrialSpec]) -> None:
    plain, screened = make_spec(), make_spec(screening=TWICE)
    assert plain.trial_id == screened.trial_id
    assert TrialSpec.from_dict(screened.to_dict()) == screened


def test_only_frameworks_are_screened_and_bench_plans_them_alike() -> None:
    choices = choices_from({"scale": "paper", "device": "cpu"}, {})
    planned = plan_artefact("headline_seq2seq", choices, Composer())
    said = expand("headline_seq2seq", "paper").screening
    assert said is not None
    screened = {trial.spec.system for trial in planned if trial.spec.screening == said}
    rest = {trial.spec.system for trial in planned} - screened
    assert {"torch_levels", "dynet"} <= screened
    assert {"vertex", "cavs", "products"} <= rest
    specs, _ = experiment_trials("headline_seq2seq", choices, None, ["device=cpu"])
    assert {spec.system for spec in specs if spec.screening == said} == screened


@pytest.mark.parametrize(
    ("in_full", "expected"),
    [
        (1, TWICE),
        (3, Screening(rounds=3, factor=TWICE.factor)),
        (5, Screening(rounds=5, factor=TWICE.factor)),
        (6, None),
        (9, None),
    ],
)
def test_a_trial_has_all_rounds_that_another_wants_in_full(
    in_full: int, expected: Screening | None, make_spec: Callable[..., TrialSpec]
) -> None:
    screened = PlannedTrial(make_spec(screening=TWICE), {}, (), 6)
    full = replace(screened, spec=replace(screened.spec, screening=None), rounds=in_full)
    for asked in ([screened, full], [full, screened]):
        (found,) = measuring_order(asked)
        assert (found.rounds, found.spec.screening) == (max(6, in_full), expected)


def test_a_trial_is_screened_where_all_say_one_factor(make_spec: Callable[..., TrialSpec]) -> None:
    screened = PlannedTrial(make_spec(screening=TWICE), {}, (), 6)
    (found,) = measuring_order([screened, screened])
    assert found.spec.screening == TWICE
    other = replace(screened.spec, screening=Screening(rounds=2, factor=3.0))
    (found,) = measuring_order([screened, replace(screened, spec=other)])
    assert found.spec.screening is None


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("two", "give {rounds: 2, factor: 2}"),
        ({"rounds": 2}, "give {rounds: 2, factor: 2}"),
        ({"rounds": 2, "factor": 0.5}, "screening.factor=0.5 is not allowed"),
        ({"rounds": 0, "factor": 2}, "screening.rounds=0 is not allowed"),
        ({"rounds": 6, "factor": 2}, "which leaves none out"),
    ],
)
def test_what_is_no_screening_is_refused(said: Any, words: str, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    scale = {"rounds": 6, "screening": said, "blocks": [{"system": "vertex"}]}
    content = {"title": "A title", "paper": "A paper", "scales": {"paper": scale}}
    (tmp_path / "experiment/one.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=r"experiment/one\.yaml, scale paper") as caught:
        expand("one", "paper", tmp_path)
    assert words in str(caught.value)
