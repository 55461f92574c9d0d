"""The order of measuring: by rounds, and in each the systems of a point as they are drawn."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from harness.planning.rounds import in_rounds, order_of_round
from harness.trials.spec import TrialSpec

MakeSpec = Callable[..., TrialSpec]
SYSTEMS = [f"system_{name}" for name in "abcdef"]


def drawn(specs: list[TrialSpec], round_: int) -> list[TrialSpec]:
    return order_of_round(specs, round_, lambda spec: spec)


def names(specs: list[TrialSpec]) -> list[str]:
    return [spec.system for spec in specs]


def grid(make_spec: MakeSpec, systems: list[str] = SYSTEMS) -> list[TrialSpec]:
    sizes = (8, 16, 32)
    return [make_spec(system=s, batch_size=b) for b, s in itertools.product(sizes, systems)]


def test_all_trials_of_a_round_come_before_the_next_and_each_once(make_spec: MakeSpec) -> None:
    specs = grid(make_spec)
    found = in_rounds(specs, lambda spec: 3 if spec.batch_size == 8 else 2, lambda spec: spec)
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


def test_whoever_comes_first_changes(make_spec: MakeSpec) -> None:
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
