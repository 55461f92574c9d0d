"""Numbers of claims from made-up records, and reasons that prevent a decision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.artifacts import PlannedTrial
from dynbatch.harness.planning.claim_points import Answer
from dynbatch.harness.planning.claims import EACH_STEP, Claim, Rule, read_claims
from dynbatch.harness.planning.grid import EXPERIMENT
from dynbatch.harness.records.record import Record
from dynbatch.harness.records.tidy import RELEASED, build_count_rows, build_frame_from_rows
from dynbatch.harness.values.paths import CONF_DIR
from dynbatch.plots.declaration import check_quantity, read_declaration
from dynbatch.plots.experiment import MISSING_COUNT, Experiment, join_plan
from dynbatch.plots.published import FOLDER
from dynbatch.plots.tables.claims import (
    IN_PART,
    NOT_MEASURABLE,
    NOT_REPRODUCED,
    NOT_SHOWN,
    REPRODUCED,
    arrange,
    judge,
)
from tests.support.records import made_up_record, plain_count

UP = Rule(rationale="made up", at_least=2.0)
DOWN = Rule(rationale="made up", at_most=2.0)
FASTER = Rule(rationale="made up", at_least=1.0)

ANSWER = Answer(
    experiment="one",
    quantity="instance_s",
    numerator={"system": ("slow", "slower")},
    denominator={"system": ("quick",)},
    substitution="nothing",
)
CLAIM = Claim(
    name="dream",
    claim="A cell trains twice as fast when it is batched",
    authors="Nobody",
    paper="None, 2020",
    year=2020,
    location="Table 0",
    conditions="in a dream",
    device="cpu",
    published="2 to 3",
    number=4,
    answer=ANSWER,
    rule=UP,
    answered_at=("smoke", "paper"),
    decided_at=("paper",),
)
SHARE = replace(
    ANSWER, quantity="construction_percent", numerator={"system": ("slow",)}, denominator={}
)
BATCHES = replace(ANSWER, quantity="batches", numerator={"policy": ("depth", "agenda")})
Point = tuple[dict[str, Any], tuple[Record | None, ...]]


def build_point(system: str, speeds: Sequence[float], at: int = 8, **changes: Any) -> Point:
    """Return the settings of a trial and its rounds, by their instances per second."""
    settings = {
        EXPERIMENT: changes.pop("experiment", "one"),
        "system": system,
        "model": "tree_fc",
        "dataset": "sst",
        "batch_size": at,
        "hidden_size": 4,
    }
    trial = cast(PlannedTrial, SimpleNamespace(settings=settings, trial_id=f"{system}-{at}"))
    records = [
        made_up_record(trial, n, instances_per_s=speed, **changes) for n, speed in enumerate(speeds)
    ]
    return settings, tuple(records)


def build_experiment(
    *points: Point, scale: str = "paper", counts: Sequence[Any] = ()
) -> Experiment:
    trials = [cast(PlannedTrial, SimpleNamespace(settings=settings)) for settings, _ in points]
    return Experiment(
        declaration=read_declaration("claims", CONF_DIR),
        scale=scale,
        rows=join_plan(trials, [records for _, records in points]),
        counts=build_frame_from_rows([row for count in counts for row in build_count_rows(count)]),
        settings=tuple(settings for settings, _ in points),
        claims=(CLAIM,),
    )


QUICK, SLOW = build_point("quick", [100, 100, 100]), build_point("slow", [10, 10, 10])


def get_verdict(claim: Claim, experiment: Experiment) -> tuple[str, str]:
    claimed, _ = judge(claim, experiment)
    return claimed["verdict"], claimed["reason"]


def get_values(claim: Claim, experiment: Experiment) -> list[float]:
    _, points = judge(claim, experiment)
    return [float(value) for value in points.value]


def test_a_ratio_is_of_the_fastest_of_each_side() -> None:
    experiment = build_experiment(QUICK, SLOW, build_point("slower", [80, 80, 80]))
    assert get_values(CLAIM, experiment) == [pytest.approx(100 / 80)]
    assert get_verdict(CLAIM, experiment) == (IN_PART, "")
    assert get_verdict(CLAIM, build_experiment(QUICK, SLOW)) == (REPRODUCED, "")


def test_a_claim_that_is_not_reproduced_is_explained() -> None:
    claim = replace(CLAIM, explanation="a slower processor")
    part = build_experiment(QUICK, build_point("slow", [80, 80, 80]))
    assert get_verdict(claim, part) == (IN_PART, "a slower processor")
    failed = build_experiment(QUICK, build_point("slow", [120, 120, 120]))
    assert get_verdict(claim, failed) == (NOT_REPRODUCED, "a slower processor")
    assert get_verdict(claim, build_experiment(QUICK, SLOW)) == (REPRODUCED, "")


def test_points_of_other_experiments_do_not_count() -> None:
    other = build_point("slower", [99, 99, 99], experiment="two")
    assert get_verdict(CLAIM, build_experiment(other, QUICK, SLOW)) == (REPRODUCED, "")
    verdict = get_verdict(CLAIM, build_experiment(QUICK, other))
    assert verdict == (NOT_MEASURABLE, "not measured yet")


def test_either_side_may_be_the_best_over_a_key() -> None:
    points = [QUICK, build_point("quick", [400] * 3, 64), SLOW, build_point("slow", [50] * 3, 64)]
    best = replace(CLAIM, answer=replace(ANSWER, best_over="batch_size"))
    assert get_values(best, build_experiment(*points)) == [pytest.approx(400 / 50)]
    assert len(get_values(CLAIM, build_experiment(*points))) == 2


def test_a_quantity_may_count_by_itself() -> None:
    slow = build_point("slow", [10] * 3, phases_s={"construct": 0.4, "schedule": 0.2})  # of 0.8 s
    claim = replace(CLAIM, answer=SHARE, rule=replace(DOWN, at_most=74))
    assert get_values(claim, build_experiment(QUICK, slow)) == [pytest.approx(75)]
    assert get_verdict(claim, build_experiment(QUICK, slow)) == (NOT_REPRODUCED, "")


def test_a_numerator_may_have_a_quantity_of_its_own() -> None:
    """A fourth of the slow system's time is construction, a half of the quick one's."""
    slow = build_point("slow", [10] * 3, phases_s={"construct": 0.2})  # of 0.8 s
    quick = build_point("quick", [100] * 3, phases_s={"construct": 0.04})  # of 0.08 s
    one = replace(ANSWER, numerator={"system": ("slow",)}, numerator_quantity="computation_s")
    assert get_values(replace(CLAIM, answer=one), build_experiment(quick, slow)) == [
        pytest.approx(10 * 0.75)
    ]
    both = replace(CLAIM, answer=replace(one, quantity="computation_s", numerator_quantity=None))
    assert get_values(both, build_experiment(quick, slow)) == [pytest.approx(10 * 0.75 / 0.5)]


WHEEL = {"versions": {"dynet_build": "wheel 2.2"}}
OTHER = {"effective_options": {"backend": "stepwise", "instead_of": "backend=cuda: a reason"}}
WEAK = "needs the best build and kernels: "
UNMEASURED = (build_point("slower", [80])[0], (None,))


@pytest.mark.parametrize(
    ("claim", "points", "scale", "reason"),
    [
        (replace(CLAIM, device="cuda"), (QUICK, SLOW), "paper", "needs CUDA"),
        (CLAIM, (QUICK, SLOW), "smoke", "needs the paper's sizes"),
        (CLAIM, (QUICK, build_point("slow", [1], status="oom")), "paper", "slow oom"),
        (CLAIM, (QUICK, (SLOW[0], (None,))), "paper", "slow not measured"),
        (CLAIM, (QUICK, SLOW, UNMEASURED), "paper", "slower not measured"),  # it may be the best
        (CLAIM, (QUICK, build_point("slow", [1], **WHEEL)), "paper", WEAK + "dynet_without_blas"),
        (CLAIM, (QUICK, build_point("slow", [1], **OTHER)), "paper", WEAK + "other_kernels"),
        (replace(CLAIM, answered_at=("paper",)), (), "smoke", "not in the grid of smoke scale"),
        (replace(CLAIM, answer=None, rule=None, unanswerable="no code"), (), "paper", "no code"),
    ],
)
def test_a_claim_that_cannot_be_decided_has_a_reason(
    claim: Claim, points: tuple[Point, ...], scale: str, reason: str
) -> None:
    experiment = build_experiment(*points, scale=scale)
    assert get_verdict(claim, experiment) == (NOT_MEASURABLE, reason)


def test_a_claim_for_a_gpu_names_systems_that_could_not_run() -> None:
    why = "torch is not installed; run pip install torch"
    failed = build_point("slow", [1, 1], status="unsupported", reason=why)
    claim = replace(CLAIM, device="cuda")
    expected = f"needs CUDA; slow could not run: {why}"
    assert get_verdict(claim, build_experiment(QUICK, failed)) == (NOT_MEASURABLE, expected)
    # The other of two systems of a side has the number that counts.
    other = build_point("slower", [20, 20])
    assert get_verdict(claim, build_experiment(QUICK, failed, other)) == (NOT_MEASURABLE, expected)


def test_steps_are_judged_one_by_one() -> None:
    steps = {"system": ("slow", "slower", "quick")}
    answer = replace(ANSWER, numerator={}, denominator={}, steps=steps)
    claim = replace(CLAIM, answer=answer, rule=replace(FASTER, quantifier=EACH_STEP))
    points = (SLOW, build_point("slower", [20, 20, 20]), QUICK)
    assert get_values(claim, build_experiment(*points)) == [pytest.approx(2), pytest.approx(5)]
    assert get_verdict(claim, build_experiment(*points)) == (REPRODUCED, "")
    _, rows = judge(claim, build_experiment(*points))
    assert [text.rpartition(" ")[2] for text in rows.point] == ["step=slower", "step=quick"]


def test_a_weak_build_decides_nothing_on_either_side_or_both() -> None:
    source = {"versions": {"dynet_build": "source"}}
    for quick, slow, verdict in (
        (WHEEL, WHEEL, NOT_MEASURABLE),
        (WHEEL, source, NOT_MEASURABLE),
        (source, WHEEL, NOT_MEASURABLE),
        (source, source, REPRODUCED),
    ):
        points = build_point("quick", [100] * 3, **quick), build_point("slow", [10] * 3, **slow)
        experiment = build_experiment(*points)
        assert get_verdict(CLAIM, experiment)[0] == verdict
        assert get_verdict(replace(CLAIM, device="any"), experiment)[0] == verdict
    alone = build_experiment(build_point("slow", [10] * 3, phases_s={"construct": 0.4}, **WHEEL))
    assert get_verdict(replace(CLAIM, answer=SHARE), alone)[0] == NOT_MEASURABLE


def test_few_or_unlike_rounds_show_nothing() -> None:
    few = build_experiment(build_point("quick", [100, 101]), build_point("slow", [10, 11]))
    assert get_verdict(CLAIM, few) == (NOT_SHOWN, "a verdict needs 3 rounds")
    unlike = build_experiment(QUICK, build_point("slow", [20, 45, 70]))  # around the threshold
    assert get_verdict(CLAIM, unlike) == (NOT_SHOWN, "")


def test_the_number_of_rounds_so_far_is_shown() -> None:
    experiment = build_experiment((QUICK[0], (*QUICK[1], None)), (SLOW[0], (*SLOW[1], None)))
    cells = arrange([judge(CLAIM, experiment)]).loc[CLAIM.claim]
    assert cells["here", "number"] == "10.0 [3]"


def test_a_batch_size_is_compared_with_another_of_the_same_system() -> None:
    """Systems are compared with themselves, though different ones are fastest at the two sizes."""
    one, many = {"batch_size": ("1",)}, {"batch_size": ("128",)}
    answer = replace(
        ANSWER, numerator=one, denominator=many, settings={"system": ("quick", "slow")}
    )
    experiment = build_experiment(
        build_point("quick", [40] * 3, 1),
        build_point("quick", [400] * 3, 128),
        build_point("slow", [100] * 3, 1),
        build_point("slow", [300] * 3, 128),
    )
    claim = replace(CLAIM, answer=answer, rule=replace(UP, at_least=3.5))
    _, points = judge(claim, experiment)
    systems = [shared["system"] for shared in points.settings]
    assert dict(zip(systems, points.value, strict=True)) == pytest.approx({"quick": 10, "slow": 3})
    assert get_verdict(claim, experiment) == (IN_PART, "")


def build_count(policy: str, batches: int | None, size: int = 8, **changes: Any) -> Any:
    values = {"n_batches_ed": batches, "lower_bound_ed": 40, "batch_size": size, **changes}
    return plain_count(f"{policy}-{size}", policy=policy, **values)


def test_counts_are_compared_with_each_other_and_with_the_bound() -> None:
    counts = [
        build_count("depth", 90),
        build_count("agenda", 80),
        build_count("clever", 40),
        build_count("depth", 70, 32),
    ]
    answer = replace(BATCHES, denominator={"policy": ("clever",)})
    # Counts have no device.
    claim = replace(CLAIM, answer=answer, device="cuda", decided_at=("smoke", "paper"))
    experiment = build_experiment(scale="smoke", counts=[*counts, counts[0]])
    claimed, _ = judge(claim, experiment)
    assert claimed["verdict"] == REPRODUCED
    assert claimed["value"] == claimed["low"] == claimed["high"] == 2.0
    bound = replace(answer, numerator={"policy": ("clever",)}, denominator={"policy": ("bound",)})
    down = replace(claim, answer=bound, rule=replace(DOWN, at_most=1.0))
    assert get_verdict(down, experiment) == (REPRODUCED, "")
    depth = replace(down, answer=replace(bound, numerator={"policy": ("depth",)}))
    assert get_values(depth, experiment) == [90 / 40, 70 / 40]
    failed = [*counts[:2], build_count("clever", None, reason_ed="it cannot")]
    verdict = get_verdict(claim, build_experiment(counts=failed))
    assert verdict == (NOT_MEASURABLE, "clever unsupported")


@pytest.mark.parametrize(
    ("policy", "size", "denominator", "verdict"),
    [
        ("agenda", 8, "clever", (NOT_MEASURABLE, "agenda not measured")),  # may be the best
        ("agenda", 8, "bound", (NOT_MEASURABLE, "agenda not measured")),
        ("clever", 32, "bound", (REPRODUCED, "")),  # the bound is known from depth
        ("depth", 32, "bound", (NOT_MEASURABLE, "bound not measured")),
    ],
)
def test_planned_counts_without_a_record_are_points(
    policy: str, size: int, denominator: str, verdict: tuple[str, str]
) -> None:
    counted = [build_count("depth", 90), build_count("clever", 40)]
    counted += [build_count("depth", 90, 32)] * (policy == "clever")
    experiment = build_experiment(counts=counted)
    lost = {**MISSING_COUNT, "n_batches": math.nan, "lower_bound": math.nan, "graph": RELEASED}
    planned = {**experiment.counts.iloc[0], **lost, "policy": policy, "batch_size": size}
    rows = pd.concat([experiment.counts, pd.DataFrame([planned])], ignore_index=True)
    claim = replace(CLAIM, answer=replace(BATCHES, denominator={"policy": (denominator,)}))
    assert get_verdict(claim, replace(experiment, counts=rows)) == verdict


def test_the_table_and_its_csv_have_the_rule_and_every_point() -> None:
    larger = build_point("quick", [9] * 3, 64), build_point("slow", [6, 5.5, 5.8], 64)
    first, points = judge(CLAIM, build_experiment(QUICK, SLOW, *larger))
    cells = arrange([(first, points)]).loc[CLAIM.claim]
    assert cells["paper", "source"] == "None, 2020, Table 0"
    assert cells["verdict", "result"] == IN_PART
    assert cells["here", "range"] == "1.50 to 10.0"
    assert first["point"] == "deciding"
    assert list(points.point) == [
        f"model=tree_fc dataset=sst batch_size={size} hidden_size=4" for size in (8, 64)
    ]
    assert first["quantity"] == "instance_s"
    assert first["rationale"] == "made up"
    assert first["value"] == pytest.approx(9 / 5.8)
    assert first["measured_over_claimed"] == pytest.approx(first["value"] / 4)


def test_an_unknown_quantity_is_rejected() -> None:
    for key in ("quantity", "numerator_quantity"):
        claim = replace(CLAIM, answer=replace(ANSWER, **{key: "instance_ms"}))
        with pytest.raises(ConfigError, match=r"claims/dream.yaml: unknown quantity.*instance_s"):
            judge(claim, build_experiment(QUICK, SLOW))


def test_shipped_claims_have_known_quantities_and_tables() -> None:
    for claim in read_claims(CONF_DIR):
        assert claim.table is None or (FOLDER / f"{claim.table}.yaml").is_file()
        if claim.answer and not claim.answer.counts_batches:
            for quantity in claim.answer.quantities:
                check_quantity(claim.name, quantity)
