"""Order of measurement: round after round, with the systems of a point in random order."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.artifacts import PlannedTrial, order_trials
from dynbatch.harness.planning.ordering import (
    AT_LARGEST,
    compute_shared_n_instances,
    order_rounds,
    shuffle_round,
)
from dynbatch.harness.terminal.command_line import parse, plan
from dynbatch.harness.trials.spec import Timing, TrialSpec
from dynbatch.harness.trials.workload import load_workload
from tests.support.measured import MakeSpec

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
    groups = order_rounds(specs, lambda spec: 3 if spec.batch_size == 8 else 2, lambda spec: spec)
    found = [(spec, round_) for round_, _, there in groups for spec in there]
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


def test_the_order_is_the_same_again_and_a_system_more_changes_nothing(make_spec: MakeSpec) -> None:
    specs = grid(make_spec)
    assert drawn(specs, 1) == drawn(specs, 1)
    fewer = grid(make_spec, SYSTEMS[1:])
    kept = [spec for spec in drawn(specs, 1) if spec.system != SYSTEMS[0]]
    assert drawn(fewer, 1) == kept


def test_systems_that_compile_longest_start_first(make_spec: MakeSpec) -> None:
    quick = [make_spec(system=system) for system in SYSTEMS]
    slow = [
        make_spec(system=name, adapter=f"dynbatch.systems.{name}")
        for name in ("on_tensorflow.static", "on_jax.scan", "on_torch.compiled")
    ]
    for round_ in range(4):
        order = names(drawn([*quick, *slow], round_))
        assert order[:3] == ["on_torch.compiled", "on_jax.scan", "on_tensorflow.static"]


def test_policies_and_options_are_of_the_systems_not_of_the_point(make_spec: MakeSpec) -> None:
    alike = [make_spec(policy=policy) for policy in ("agenda", "depth")]
    alike += [make_spec(system_options={"fusion": False}), make_spec(system="other")]
    between = [*alike[:2], make_spec(hidden_size=9), *alike[2:]]
    sizes = [spec.hidden_size for spec in drawn(between, 0)]
    assert sizes == [8, 8, 8, 8, 9]


def test_a_trial_has_the_most_rounds_that_an_experiment_wants(make_spec: MakeSpec) -> None:
    wanted = [PlannedTrial(make_spec(), {}, (), rounds) for rounds in (3, 6, 1)]
    (found,) = order_trials(wanted)
    assert found.rounds == 6


SIZES = (1, 2, 8)


@pytest.mark.parametrize("order", ["shuffled", "file", "length"])
def test_whatever_the_batch_size_the_same_instances_are_measured(
    make_spec: MakeSpec, order: str
) -> None:
    sentences = {
        **{"model": "var_lstm", "dataset": "ptb_synthetic", "split": "dev", "order": order},
        **{"model_options": {}, "dataset_options": {}},
        "timing": Timing(n_instances=16),
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
