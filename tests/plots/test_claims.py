"""Verdicts on claims, each from made-up numbers, and what keeps numbers from deciding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.errors import ConfigError
from harness.planning.artefacts import PlannedTrial
from harness.planning.claims import Answer, Claim, Rule, read_claims
from harness.planning.grid import EXPERIMENT
from harness.records.stats import Summary
from harness.values.places import CONF_DIR
from plots.numbers.artefact import Artefact
from plots.numbers.claims import check_shown, judged
from plots.numbers.points import Measured, Point
from plots.numbers.presentation import read_presentation
from plots.numbers.table import EN_DASH
from plots.numbers.verdicts import NOT_MEASURABLE, NOT_REPRODUCED, NOT_SHOWN, REPRODUCED, decide
from plots.tables.claims import range_words, rows_of, rule_words, table_of, verdict_words
from tests.support.made_up_records import made_up_record
from tests.support.plain_records import plain_count

UP = Rule(because="made up", at_least=2.0)
DOWN = Rule(because="made up", at_most=2.0)
BETWEEN = Rule(because="made up", at_least=1.0, at_most=2.0)
OOM = Measured("peer oom")


def number(low: float, median: float, high: float) -> Measured:
    return Measured("ok", Summary(median, low, high, 3))


ABOVE, BELOW, ACROSS = number(2.1, 3, 4), number(1.2, 1.5, 1.8), number(1.5, 3, 4)
ONCE = Measured("ok", Summary(2.5, None, None, 1))


@pytest.mark.parametrize(
    ("rule", "measured", "verdict", "deciding"),
    [
        (UP, [ABOVE], REPRODUCED, ABOVE),
        (UP, [BELOW], NOT_REPRODUCED, BELOW),
        (UP, [ACROSS], NOT_SHOWN, ACROSS),  # whose median alone is above
        (UP, [ONCE], REPRODUCED, ONCE),
        (DOWN, [ABOVE], NOT_REPRODUCED, ABOVE),
        (DOWN, [BELOW], REPRODUCED, BELOW),
        (DOWN, [ACROSS], NOT_SHOWN, ACROSS),
        (BETWEEN, [BELOW], REPRODUCED, BELOW),
        (BETWEEN, [ABOVE], NOT_REPRODUCED, ABOVE),
        (BETWEEN, [number(0.5, 1.5, 1.6)], NOT_SHOWN, number(0.5, 1.5, 1.6)),
        (BETWEEN, [number(0.5, 1.5, 2.6)], NOT_SHOWN, number(0.5, 1.5, 2.6)),
        (BETWEEN, [number(0.5, 0.6, 0.9)], NOT_REPRODUCED, number(0.5, 0.6, 0.9)),
        # All points: the worst decides, and none may be missing unless one is wrong already.
        (UP, [ABOVE, BELOW], NOT_REPRODUCED, BELOW),
        (UP, [ABOVE, number(3, 4, 5)], REPRODUCED, ABOVE),
        (UP, [ABOVE, OOM], NOT_MEASURABLE, OOM),
        (UP, [BELOW, OOM], NOT_REPRODUCED, BELOW),
        (UP, [OOM], NOT_MEASURABLE, OOM),
        (UP, [ABOVE, ACROSS], NOT_SHOWN, ACROSS),
        (UP, [ACROSS, OOM], NOT_MEASURABLE, OOM),
        (UP, [number(1.0, 3, 4), BELOW], NOT_REPRODUCED, BELOW),  # although its low end is lower
        # Any point: the best decides, and none may be missing unless one is right already.
        (replace(UP, of_points="any"), [ABOVE, BELOW], REPRODUCED, ABOVE),
        (replace(UP, of_points="any"), [ACROSS, BELOW], NOT_SHOWN, ACROSS),
        (replace(UP, of_points="any"), [number(1.0, 3, 4), BELOW], NOT_SHOWN, number(1.0, 3, 4)),
        (replace(UP, of_points="any"), [BELOW], NOT_REPRODUCED, BELOW),
        (replace(UP, of_points="any"), [ABOVE, OOM], REPRODUCED, ABOVE),
        (replace(UP, of_points="any"), [BELOW, OOM], NOT_MEASURABLE, OOM),
        (replace(DOWN, of_points="any"), [ABOVE, BELOW], REPRODUCED, BELOW),
        # The median of points needs all of them.
        (replace(UP, of_points="median"), [ABOVE, OOM, ABOVE], NOT_MEASURABLE, OOM),
    ],
)
def test_a_rule_comes_to_a_verdict(
    rule: Rule, measured: Sequence[Measured], verdict: str, deciding: Measured
) -> None:
    assert decide(rule, measured) == (deciding, verdict)
    assert decide(rule, measured[::-1]) == (deciding, verdict)


def test_the_median_of_points_is_one_of_numbers_and_of_their_ends() -> None:
    rule = replace(UP, of_points="median")
    points = [number(2, 3, 5), BELOW, number(2.5, 2.6, 9)]
    whole, verdict = decide(rule, points)
    assert whole.summary == Summary(2.6, 2, 5, 3)
    assert verdict == REPRODUCED
    assert decide(replace(rule, at_least=2.2), points)[1] == NOT_SHOWN
    assert decide(replace(rule, at_least=5.1), points)[1] == NOT_REPRODUCED
    once, _ = decide(rule, [ONCE, *points[:2]])
    assert once.summary is not None
    assert (once.summary.low, once.summary.n_rounds) == (None, 1)


ANSWER = Answer(
    experiment="one",
    scales=("smoke", "paper"),
    decided_at=("paper",),
    quantity="epoch_s",
    of={"system": ("slow", "slower")},
    over={"system": ("quick",)},
    stands_in="nothing",
)
CLAIM = Claim(
    name="dream",
    claim="A cell trains twice as fast when it is batched",
    who="Nobody",
    paper="None, 2020",
    year=2020,
    where="Table 0",
    conditions="in a dream",
    device="cpu",
    published="2 to 3",
    number=4,
    answer=ANSWER,
    rule=UP,
)


def point(system: str, speeds: Sequence[float], at: int = 8, **said: Any) -> Point:
    """A trial's rounds, by their instances per second."""
    settings = {
        EXPERIMENT: said.pop("experiment", "one"),
        "system": system,
        "model": "tree_fc",
        "dataset": "sst",
        "batch_size": at,
        "hidden_size": 4,
    }
    trial = SimpleNamespace(settings=settings, trial_id=f"{system}-{at}")
    records = [
        made_up_record(cast(PlannedTrial, trial), r, instances_per_s=speed, **said)
        for r, speed in enumerate(speeds)
    ]
    return Point(settings, tuple(records))


def artefact(*points: Point, scale: str = "paper", counts: Sequence[Any] = ()) -> Artefact:
    return Artefact(
        presentation=read_presentation("claims", CONF_DIR),
        scale=scale,
        points=points,
        labels={},
        counts=tuple(counts),
        claims=(CLAIM,),
    )


QUICK, SLOW = point("quick", [100, 100, 100]), point("slow", [10, 10, 10])


def verdict_of(claim: Claim, shown: Artefact) -> tuple[str, str]:
    one = judged(claim, shown)
    return one.verdict, one.why


def test_a_ratio_is_of_the_best_of_each_side() -> None:
    one = judged(CLAIM, artefact(QUICK, SLOW, point("slower", [80, 80, 80])))
    assert one.deciding.summary is not None
    assert one.deciding.summary.median == pytest.approx(100 / 80)
    assert (one.verdict, one.why) == (NOT_REPRODUCED, "")
    assert judged(CLAIM, artefact(QUICK, SLOW)).verdict == REPRODUCED


def test_points_of_other_experiments_do_not_count() -> None:
    other = point("slower", [99, 99, 99], experiment="two")
    assert judged(CLAIM, artefact(QUICK, SLOW, other)).verdict == REPRODUCED
    assert verdict_of(CLAIM, artefact(QUICK, other)) == (NOT_MEASURABLE, "not measured yet")


def test_either_side_may_be_the_best_over_a_key() -> None:
    points = [QUICK, point("quick", [400] * 3, 64), SLOW, point("slow", [50] * 3, 64)]
    best = replace(CLAIM, answer=replace(ANSWER, best_over="batch_size"))
    (one,) = judged(best, artefact(*points)).points
    assert one.measured.summary is not None
    assert one.measured.summary.median == pytest.approx(400 / 50)
    assert len(judged(CLAIM, artefact(*points)).points) == 2


def test_a_quantity_may_count_by_itself() -> None:
    answer = replace(ANSWER, quantity="construction_percent", of={"system": ("slow",)}, over={})
    share = replace(CLAIM, answer=answer, rule=replace(DOWN, at_most=74))
    slow = point("slow", [10], phases_s={"construct": 0.4, "schedule": 0.2})  # of 0.8 s
    one = judged(share, artefact(QUICK, slow))
    assert one.deciding.summary is not None
    assert one.deciding.summary.median == pytest.approx(75)
    assert one.verdict == NOT_REPRODUCED


@pytest.mark.parametrize(
    ("claim", "shown", "why"),
    [
        (replace(CLAIM, device="cuda"), artefact(QUICK, SLOW), "needs CUDA"),
        (CLAIM, artefact(QUICK, SLOW, scale="smoke"), "needs the paper's sizes"),
        (CLAIM, artefact(QUICK, point("slow", [1], status="oom")), "slow oom"),
        (CLAIM, artefact(QUICK, Point(SLOW.settings, (None,))), "slow missing"),
        (
            CLAIM,
            artefact(QUICK, point("slow", [1, 1], versions={"dynet_build": "wheel 2.2"})),
            "needs the project's best build: dynet_wheel",
        ),
        (
            replace(CLAIM, answer=replace(ANSWER, scales=("paper",))),
            artefact(scale="smoke"),
            "not in the grid of smoke scale",
        ),
        (replace(CLAIM, answer=None, rule=None, unanswerable="no code"), artefact(), "no code"),
    ],
)
def test_what_cannot_be_measured_here_says_why(claim: Claim, shown: Artefact, why: str) -> None:
    assert verdict_of(claim, shown) == (NOT_MEASURABLE, why)


def test_numbers_that_decide_nothing_are_shown_all_the_same() -> None:
    one = judged(replace(CLAIM, device="cuda"), artefact(QUICK, SLOW))
    (_, cells), *_ = table_of(artefact(QUICK, SLOW), [one]).rows
    assert [str(cell) for cell in cells[2:]] == [
        "10.0",
        "2.50",
        EN_DASH,
        "CPU, b 8, h 4, 1 point",
        "at least 2, all points",
        "not measurable here (needs CUDA)",
    ]


def test_a_weak_build_decides_nothing_on_either_side_or_both() -> None:
    wheel = {"versions": {"dynet_build": "wheel 2.2"}}
    source = {"versions": {"dynet_build": "source"}}
    for quick, slow, verdict in (
        (wheel, wheel, NOT_MEASURABLE),
        (wheel, source, NOT_MEASURABLE),
        (source, wheel, NOT_MEASURABLE),
        (source, source, REPRODUCED),
    ):
        shown = artefact(point("quick", [100], **quick), point("slow", [10], **slow))
        assert judged(CLAIM, shown).verdict == verdict
        assert judged(replace(CLAIM, device="any"), shown).verdict == verdict
    share = replace(ANSWER, quantity="construction_percent", of={"system": ("slow",)}, over={})
    alone = artefact(point("slow", [10], phases_s={"construct": 0.4}, **wheel))
    assert judged(replace(CLAIM, answer=share), alone).verdict == NOT_MEASURABLE


def test_an_interval_that_holds_the_threshold_says_so() -> None:
    one = judged(CLAIM, artefact(QUICK, point("slow", [20, 70])))
    assert verdict_words(one) == "not shown (the interval holds the threshold)"


def test_a_batch_size_is_compared_with_another_of_the_same_system() -> None:
    """The fastest system at one batch size and that at another may be two."""
    answer = replace(
        ANSWER,
        of={"batch_size": ("1",)},
        over={"batch_size": ("128",)},
        at={"system": ("quick", "slow")},
    )
    shown = artefact(
        point("quick", [40], 1),
        point("quick", [400], 128),
        point("slow", [100], 1),
        point("slow", [300], 128),
    )
    one = judged(replace(CLAIM, answer=answer, rule=replace(UP, at_least=3.5)), shown)
    told = {p.at["system"]: p.measured.summary for p in one.points}
    assert {name: s.median for name, s in told.items() if s} == {
        "quick": pytest.approx(10),
        "slow": pytest.approx(3),
    }
    assert one.verdict == NOT_REPRODUCED


def count(policy: str, batches: int, size: int = 8, **said: Any) -> Any:
    values = {"n_batches_ed": batches, "lower_bound_ed": 40, "batch_size": size, **said}
    return plain_count(f"{policy}-{size}", policy=policy, **values)


def test_counts_are_compared_with_each_other_and_with_the_bound() -> None:
    rows = [count("depth", 90), count("agenda", 80), count("clever", 40), count("depth", 70, 32)]
    answer = replace(
        ANSWER,
        quantity="batches",
        of={"policy": ("depth", "agenda")},
        over={"policy": ("clever",)},
        decided_at=("smoke", "paper"),
    )
    claim = replace(CLAIM, answer=answer, device="cuda")  # a count is of no device
    shown = artefact(scale="smoke", counts=[*rows, rows[0]])
    one = judged(claim, shown)
    assert (one.verdict, len(one.points)) == (REPRODUCED, 1)
    assert one.deciding.summary == Summary(2.0, 2.0, 2.0, 1)
    bound = replace(answer, of={"policy": ("clever",)}, over={"policy": ("bound",)})
    down = replace(claim, answer=bound, rule=replace(DOWN, at_most=1.0))
    assert judged(down, shown).verdict == REPRODUCED
    depth = replace(down, answer=replace(bound, of={"policy": ("depth",)}))
    assert [
        p.measured.summary.median for p in judged(depth, shown).points if p.measured.summary
    ] == [
        90 / 40,
        70 / 40,
    ]
    failed = [*rows[:2], count("clever", 40, n_batches_ed=None, reason_ed="it cannot")]
    assert verdict_of(claim, artefact(counts=failed)) == (NOT_MEASURABLE, "clever unsupported")


def test_the_table_and_its_data_tell_the_rule_and_every_point() -> None:
    shown = artefact(QUICK, SLOW, point("quick", [9, 9], 64), point("slow", [6, 5], 64))
    one = judged(CLAIM, shown)
    ((header, cells),) = table_of(shown, [one]).rows
    assert header == CLAIM.claim
    assert str(cells[0]) == "None, 2020, Table 0"
    assert str(cells[-1]) == NOT_REPRODUCED
    assert str(cells[4]) == range_words(one.points) == "1.50 to 10.0"
    rows = rows_of([one])
    assert [row["point"] == "deciding" for row in rows] == [True, False, False]
    assert rows[0]["quantity"] == "epoch_s: slow/slower over quick"
    assert rows[0]["because"] == "made up"
    assert rows[0]["of_claimed"] == pytest.approx(float(str(rows[0]["value"])) / 4)
    assert rows[0]["value"] == pytest.approx(9 * (1 / 6 + 1 / 5) / 2)


def test_rules_are_told_in_a_few_words() -> None:
    rules = (UP, replace(DOWN, of_points="any"), replace(BETWEEN, of_points="median"))
    assert [rule_words(rule) for rule in rules] == [
        "at least 2, all points",
        "at most 2, any point",
        "1 to 2, the median",
    ]


def test_shipped_claims_show_known_quantities_and_tables() -> None:
    check_shown(read_claims(CONF_DIR))
    with pytest.raises(ConfigError, match="published has table nowhere, which is no file of"):
        check_shown([replace(CLAIM, table="nowhere")])
    with pytest.raises(ConfigError, match="answer has quantity joy; choose one of"):
        check_shown([replace(CLAIM, answer=replace(ANSWER, quantity="joy"))])
