"""Order of measurement: round after round, with the systems of a point in random order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.artifacts import (
    PlannedTrial,
    build_choices,
    order_trials,
    plan_artifact,
)
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.grid import expand
from dynbatch.harness.planning.ordering import (
    AT_LARGEST,
    Field,
    build_fields,
    compute_shared_n_instances,
    find_skip_reason,
    order_rounds,
    shuffle_round,
)
from dynbatch.harness.records.record import Record, write_record
from dynbatch.harness.terminal.command_line import parse, plan, plan_experiment
from dynbatch.harness.trials.spec import Screening, Timing, TrialSpec
from dynbatch.harness.trials.workload import load_workload
from tests.support.records import plain_record

MakeSpec = Callable[..., TrialSpec]
SYSTEMS = [f"system_{name}" for name in "abcdef"]


def drawn(specs: list[TrialSpec], round_: int) -> list[TrialSpec]:
    return shuffle_round(specs, round_, lambda spec: spec)


def names(specs: list[TrialSpec]) -> list[str]:
    return [spec.system for spec in specs]


def grid(make_spec: MakeSpec, systems: list[str] = SYSTEMS) -> list[TrialSpec]:
    sizes = (8, 16, 32)
    return [make_spec(system=s, batch_size=b) for b, s in itertools.product(sizes, systems)]


def test_all_trials_of_a_round_come_before_the_next_and_each_once(make_spec: MakeSpec) -> None:
    specs = grid(make_spec)
    found = order_rounds(specs, lambda spec: 3 if spec.batch_size == 8 else 2, lambda spec: spec)
    rounds = [round_ for _, round_ in found]
    assert rounds == sorted(rounds)
    assert [rounds.count(r) for r in range(3)] == [18, 18, 6]
    assert len({(spec.trial_id, round_) for spec, round_ in found}) == len(found)


def test_the_systems_of_a_point_stand_together_and_points_stay(make_spec: MakeSpec) -> None:
    for round_ in range(4):
        sizes = [spec.batch_size for spec in drawn(grid(make_spec), round_)]
        assert sizes == [8] * 6 + [16] * 6 + [32] * 6


def test_every_round_and_every_point_has_an_order_of_its_own(make_spec: MakeSpec) -> None:
    orders = {
        tuple(names(drawn(grid(make_spec), round_))[at : at + 6])
        for round_ in range(4)
        for at in (0, 6, 12)
    }
    assert len(orders) >= 11  # of 12 that are drawn out of 720
    assert {frozenset(order) for order in orders} == {frozenset(SYSTEMS)}


def test_first_system_changes_between_rounds(make_spec: MakeSpec) -> None:
    first = [names(drawn(grid(make_spec), round_))[0] for round_ in range(60)]
    assert min(first.count(system) for system in SYSTEMS) >= 3  # 10 on average


def test_the_order_is_the_same_again_and_a_system_more_changes_nothing(
    make_spec: MakeSpec,
) -> None:
    specs = grid(make_spec)
    assert drawn(specs, 1) == drawn(specs, 1)
    fewer = grid(make_spec, SYSTEMS[1:])
    kept = [spec for spec in drawn(specs, 1) if spec.system != SYSTEMS[0]]
    assert drawn(fewer, 1) == kept


def test_policies_and_options_are_of_the_systems_not_of_the_point(make_spec: MakeSpec) -> None:
    alike = [make_spec(policy=policy) for policy in ("agenda", "depth")]
    alike += [make_spec(system_options={"fusion": False}), make_spec(system="other")]
    between = [*alike[:2], make_spec(hidden_size=9), *alike[2:]]
    sizes = [spec.hidden_size for spec in drawn(between, 0)]
    assert sizes == [8, 8, 8, 8, 9]


TWICE = Screening(rounds=2, factor=2.0)
Speeds = dict[str, list[float | None]]  # by system; None: no number


def record_of(system: str, round_: int, speed: float | None) -> Record:
    if speed is None:
        return plain_record(round_, {"status": "timeout", "reason": "made up"}, system=system)
    return plain_record(round_, {"instances_per_s": speed}, system=system)


def why(system: str, speeds: Speeds, screening: Screening = TWICE, round_: int = 2) -> str | None:
    def read_round(name: str, round_: int) -> Record | None:
        return record_of(name, round_, speeds[name][round_]) if speeds[name][round_:] else None

    return Field(screening, system, tuple(speeds)).explain_skip(read_round, round_)


FAR = "at least 2.2 times as slow as quick in each of the first 2 rounds"
THREE: Speeds = {"quick": [100, 110], "slow": [40, 50], "close": [90, 95]}


@pytest.mark.parametrize(
    ("system", "speeds", "reason"),
    [
        ("slow", THREE, FAR),
        ("close", THREE, None),
        ("quick", THREE, None),
        ("slow", {"quick": [100, 100], "slow": [10, 60]}, None),  # one good round is enough
        ("alone", {"failed": [None, None], "alone": [10, 10]}, None),  # the other has no number
        ("new", {"quick": [100, 100], "new": []}, None),  # no records of the first rounds
        ("quick", {"quick": [100, 100], "new": []}, None),
    ],
)
def test_baseline_slow_in_every_first_round_is_screened_out(
    system: str, speeds: Speeds, reason: str | None
) -> None:
    assert why(system, speeds) == reason


@pytest.mark.parametrize(
    "unlike", [{"inputs_sha256": "b" * 64}, {"machine": {"cpu": "Another CPU"}}]
)
def test_screening_requires_comparable_records(unlike: dict[str, Any]) -> None:
    def read_round(name: str, round_: int) -> Record:
        record = record_of(name, round_, {"slow": 10.0, "quick": 100.0}[name])
        changes = {"inputs_sha256": "a" * 64} | (unlike if name == "quick" else {})
        return record.model_copy(update=changes)

    assert Field(TWICE, "slow", ("slow", "quick")).explain_skip(read_round, 2) is None
    unlike = {}
    assert Field(TWICE, "slow", ("slow", "quick")).explain_skip(read_round, 2) is not None


def test_trial_that_reached_a_limit_is_screened_out() -> None:
    speeds: Speeds = {"failed": [None, 15], "late": [15, 15, None], "alone": [10, 10, 10]}
    assert why("failed", speeds, round_=0) is None
    assert why("failed", speeds, round_=1) == "timeout in round 0"
    assert why("late", speeds, round_=2) is None
    assert why("late", speeds, round_=3) == "timeout in round 2"
    assert why("alone", speeds, round_=3) is None


@given(
    st.lists(st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=2), min_size=1, max_size=6),
    st.floats(1.0, 10.0),
)
def test_the_fastest_of_any_round_is_never_screened_out(
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
    a, b, ours, other = build_fields([*specs, spec("c", 2, Screening(rounds=2, factor=3.0))])[:4]
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
            record = make_record(spec.replace_round(round_), samples_s=samples)
            write_record(tmp_path / "raw" / spec.trial_id / f"r{round_}.json", record)
    _, field = build_fields([quick, slow])
    screened_out = [find_skip_reason(field, round_, tmp_path) is not None for round_ in range(4)]
    assert screened_out == [False, False, True, True]
    assert find_skip_reason(None, 5, tmp_path) is None


def test_a_screening_changes_neither_name_nor_work(make_spec: Callable[..., TrialSpec]) -> None:
    plain, screened = make_spec(), make_spec(screening=TWICE)
    assert plain.trial_id == screened.trial_id
    assert TrialSpec.from_dict(screened.to_dict()) == screened


def test_only_frameworks_are_screened_and_bench_plans_them_alike() -> None:
    choices = build_choices({"scale": "paper", "device": "cpu"}, {})
    planned = plan_artifact("headline_seq2seq", choices, Composer())
    printed = expand("headline_seq2seq", "paper").screening
    assert printed is not None
    screened = {trial.spec.system for trial in planned if trial.spec.screening == printed}
    rest = {trial.spec.system for trial in planned} - screened
    assert {"torch_levels", "dynet"} <= screened
    assert {"vertex", "cavs", "products"} <= rest
    specs, _ = plan_experiment("headline_seq2seq", choices, None, {"device": "cpu"})
    assert {spec.system for spec in specs if spec.screening == printed} == screened


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
        (found,) = order_trials(asked)
        assert (found.rounds, found.spec.screening) == (max(6, in_full), expected)


def test_screening_requires_identical_settings_in_all_experiments(
    make_spec: Callable[..., TrialSpec],
) -> None:
    screened = PlannedTrial(make_spec(screening=TWICE), {}, (), 6)
    (found,) = order_trials([screened, screened])
    assert found.spec.screening == TWICE
    other = replace(screened.spec, screening=Screening(rounds=2, factor=3.0))
    (found,) = order_trials([screened, replace(screened, spec=other)])
    assert found.spec.screening is None


SIZES = (1, 2, 8)


@pytest.mark.parametrize("order", ["shuffled", "file", "length"])
def test_whatever_the_batch_size_the_same_instances_are_measured(
    make_spec: MakeSpec, order: str
) -> None:
    sentences = {
        **{
            "model": "var_lstm",
            "model_module": "dynbatch.harness.models.var_lstm",
            "model_options": {},
        },
        **{
            "dataset": "ptb_synthetic",
            "loader": "dynbatch.datasets.ptb_synthetic",
            "dataset_options": {},
        },
        **{"split": "dev", "order": order, "timing": Timing(n_instances=16)},
    }
    found = {}
    for size in SIZES:
        work = load_workload(make_spec(**sentences, batch_size=size))
        assert {len(mini_batch) for mini_batch in work.mini_batches} == {size}, "all are full"
        flat = [chain for mini_batch in work.mini_batches for chain in mini_batch]
        found[size] = sorted(tuple(chain.words) for chain in flat)
    assert len(found[1]) == 16
    assert found[1] == found[2] == found[8]


def test_partial_mini_batches_are_rejected(make_spec: MakeSpec) -> None:
    for n_instances in (9, 1):
        with pytest.raises(ConfigError, match=f"n_instances={n_instances} is not a multiple of"):
            make_spec(batch_size=2, timing=Timing(n_instances=n_instances))


def test_default_timing_keys_do_not_affect_trial_ids(make_spec: MakeSpec) -> None:
    spec = make_spec()
    assert not {"n_instances", "max_warmup", "max_warmup_s"} & set(spec.identity["timing"])
    other = [Timing(n_instances=4), Timing(max_warmup=3), Timing(max_warmup_s=9.0)]
    assert len({make_spec(timing=timing).trial_id for timing in other}) == 3


@pytest.mark.parametrize(
    ("sizes", "n"), [((16, 64), 256), ((1, 256), 1024), ((3, 4), 48), ((48, 64), 768)]
)
def test_a_sweep_fills_mini_batches_of_every_size(sizes: tuple[int, ...], n: int) -> None:
    assert compute_shared_n_instances(sizes, n_mini_batches=16) == n
    assert all(n % size == 0 for size in sizes)
    assert n >= 16 * min(sizes)
    assert n >= AT_LARGEST * max(sizes)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["batch_size=2,8"], {2: (16, 32), 8: (4, 32)}),
        (["batch_size=2,8", "timing.n_mini_batches=3"], {2: (3, 0), 8: (3, 0)}),
        (["batch_size=2,8", "timing.n_instances=8"], {2: (4, 8), 8: (1, 8)}),
        (["batch_size=8", "hidden_size=2,3"], {8: (16, 0)}),
    ],
)
def test_bench_sweeps_over_the_same_instances(
    typed: list[str], found: dict[int, tuple[int, int]], tmp_path: Path
) -> None:
    words = ["-m", "system=null", "model=tree_fc", "dataset=complete_trees", *typed]
    specs = [one.spec for one in plan(parse([*words, f"results_dir={tmp_path}"]), words)]
    planned = {s.batch_size: (s.n_mini_batches, s.timing.n_instances) for s in specs}
    assert planned == found
