"""Claims of papers that are shipped: ranges, points and scales that decide them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from dynbatch.harness.planning.artifacts import (
    Choices,
    build_choices,
    describe_undecidable,
    plan_artifact,
    plan_counts,
)
from dynbatch.harness.planning.claim_points import STEP, expand_sweeps, find_comparisons
from dynbatch.harness.planning.claims import Claim, read_claims
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.grid import EXPERIMENT, expand
from dynbatch.harness.values.paths import CONF_DIR, ROOT
from dynbatch.plots.published import read_published


def choices(scale: str) -> Choices:
    return build_choices({"scale": scale, "device": "cpu", "data_root": "none"}, {})


def rules() -> list[Claim]:
    return [claim for claim in read_claims(CONF_DIR) if claim.rule is not None]


def find_claim(name: str) -> Claim:
    return next(claim for claim in read_claims(CONF_DIR) if claim.name == name)


def test_ranges_are_those_of_the_claimed_numbers() -> None:
    """A limit is the claimed number, and its tolerance at most 10 % of it."""
    found = [claim for claim in rules() if claim.number is not None]
    assert len(found) >= 30
    for claim in found:
        assert claim.number in (claim.rule.at_least, claim.rule.at_most), claim.name
        assert claim.rule.tolerance <= 0.1 * claim.number + 1e-9, claim.name
        assert claim.rule.rationale, claim.name
        if claim.answer and claim.answer.is_ratio and claim.rule.at_least:
            assert claim.rule.lowest > 1, claim.name  # not relaxed to no effect


def test_tolerances_for_rounding_are_half_a_unit_of_the_last_digit() -> None:
    found = [claim for claim in rules() if claim.rule and "as rounded" in claim.rule.rationale]
    assert len(found) >= 20
    for claim in found:
        assert claim.number is not None, claim.name
        if "%" in claim.rule.rationale:
            continue
        words = claim.published.split()
        printed = next(w for w in words if w[0].isdigit() and float(w) == claim.number)
        half_unit = 0.5 * 10.0 ** -len(printed.partition(".")[2])
        assert claim.rule.tolerance == pytest.approx(half_unit), claim.name


@pytest.mark.parametrize(("scale", "device"), [("smoke", "cpu"), ("paper", "cuda")])
def test_claims_that_a_run_cannot_decide_have_reasons(scale: str, device: str) -> None:
    claims = read_claims(CONF_DIR)
    n_decidable = sum(not claim.explain_undecidable(scale, device) for claim in claims)
    start, _, rest = describe_undecidable(replace(choices(scale), device=device)).partition(": ")
    n = len(claims) - n_decidable
    assert start == f"{n} of {len(claims)} claims cannot be decided by this run"
    assert sum(int(part.split()[0]) for part in rest.split(", ")) == n > 0
    assert f"need device={'cpu' if device == 'cuda' else 'cuda'}" in rest


def test_tolerances_for_rounded_percentages_are_half_a_percent() -> None:
    gain = find_claim("dynet_agenda_over_depth").rule
    fewer = find_claim("edbatch_batches_of_trees").rule
    assert gain.lowest == pytest.approx(1.145)
    assert fewer.lowest == pytest.approx(1 / (1 - 0.365), abs=1e-3)
    assert fewer.at_least == pytest.approx(1 / (1 - 0.37), abs=5e-3)


def test_numbers_of_shipped_claims_are_those_that_they_quote() -> None:
    for claim in rules():
        quoted = {float(word) for word in claim.published.split() if word[0].isdigit()}
        assert claim.number in quoted if quoted else claim.number is None, claim.name


def test_directions_have_the_threshold_1() -> None:
    found = [c for c in rules() if c.rule and "claim about direction" in c.rule.rationale]
    assert found
    assert all(c.rule and 1 in (c.rule.at_least, c.rule.at_most) for c in found)


def test_shipped_claims_are_valid_and_cover_the_papers() -> None:
    claims = read_claims(CONF_DIR)
    papers = {claim.paper.partition(",")[0] for claim in claims}
    assert papers == {"Cavs", "DyNet", "ED-Batch", "ACRoBat"}
    assert len(claims) >= 15
    assert all("paper" in claim.decided_at or claim.unanswerable for claim in claims)


def test_acrobat_claims_compare_the_intended_settings_and_its_numbers_satisfy_them() -> None:
    best = find_claim("acrobat_over_dynet_at_best")
    typical = find_claim("acrobat_over_dynet_typically")
    steps = find_claim("acrobat_optimisations")
    points = expand("acrobat_table4", "paper").settings
    keys = ("model", "hidden_size", "batch_size")
    compared = {
        claim.name: sorted(
            tuple(pair.settings[key] for key in keys)
            for pair in find_comparisons(claim.answer, points)
        )
        for claim in (best, typical)
    }
    assert compared[best.name] == [("mv_rnn", 64, 64)]
    table = read_published("acrobat_table4")
    both = table[table.quantity == "instance_s over base"]  # published for both systems
    assert compared[typical.name] == sorted(both[[*keys]].itertuples(index=False, name=None))
    assert typical.rule.quantifier == "median"
    assert typical.rule.lowest <= both.value.median() <= 2.35
    assert best.rule.lowest <= both.value.max() <= 8.475
    pairs = find_comparisons(steps.answer, expand("acrobat_fig5", "paper").settings)
    assert {(pair.settings[STEP], pair.settings["model"]) for pair in pairs} == {
        (step, model)
        for step in steps.answer.steps["system"][1:]
        for model in ("tree_lstm", "mv_rnn", "birnn", "nested_rnn", "drnn", "stack_rnn", "berxit")
    }


@pytest.mark.slow
def test_the_table_of_claims_measures_nothing_of_its_own() -> None:
    """Its trials and counts are those of the experiments that the claims name."""
    composer = Composer()
    planned = plan_artifact("claims", choices("smoke"), composer)
    for name in ("cavs_serial", "dynet_fig2"):
        trials = plan_artifact(name, choices("smoke"), composer)
        own = {trial.trial_id: trial.rounds for trial in trials}
        named = [trial for trial in planned if trial.settings[EXPERIMENT] == name]
        assert named
        assert {trial.trial_id: trial.rounds for trial in named}.items() <= own.items()
    sweeps = {sweep.sweep_id for sweep in plan_counts("edbatch_fig9", choices("smoke"))}
    assert {sweep.sweep_id for sweep in plan_counts("claims", choices("smoke"))} == sweeps


def test_claims_that_committed_tables_do_not_reproduce_are_explained() -> None:
    by_text = {claim.claim: claim for claim in read_claims(CONF_DIR)}
    failed = [
        cells[0]
        for path in (ROOT / "results/reference").rglob("claims.md")
        for line in path.read_text(encoding="utf-8").splitlines()
        if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) > 1
        and cells[-1].startswith(("in part", "not reproduced"))
    ]
    assert failed
    assert [text for text in failed if not by_text[text].explanation] == []


@pytest.mark.parametrize(
    "name", ["edbatch_batches_of_trees", "edbatch_bound_lattices", "edbatch_bound_two_types"]
)
def test_claims_about_a_mean_count_many_mini_batches(name: str) -> None:
    """Two mini-batches decide nothing about a mean over a data set."""
    claim = find_claim(name)
    assert claim.rule.quantifier == "mean"
    for scale in claim.decided_at:
        points = find_comparisons(claim.answer, list(expand_sweeps(plan_counts(
            claim.answer.experiment, choices(scale)
        ))))  # fmt: skip
        by_model = Counter(point.settings["model"] for point in points)
        assert min(by_model.values()) >= 11  # the dev file of lattices has fewer than 128
        assert sum(by_model.values()) >= 12
        splits = {point.settings["split"] for point in points}
        assert splits == {"train", "dev", "test"}


@pytest.mark.slow
def test_decidable_trials_are_those_of_claims_that_the_device_and_scale_decide() -> None:
    composer, claims = Composer(), rules()
    for scale, experiments in (
        ("smoke", {"edbatch_table2"}),
        ("medium", {"edbatch_table2", "dynet_fig2"}),
    ):
        planned = plan_artifact("claims", choices(scale), composer, only_decidable=True)
        assert {trial.settings[EXPERIMENT] for trial in planned} == experiments
        decided = [claim for claim in claims if not claim.explain_undecidable(scale, "cpu")]
        wanted = {
            system
            for claim in decided
            for side in (claim.answer.numerator, claim.answer.denominator)
            for system in side.get("system", ())
        }
        assert {trial.settings["system"] for trial in planned} == wanted
    shown = plan_artifact("claims", choices(scale), composer)
    assert {trial.trial_id for trial in planned} < {trial.trial_id for trial in shown}
    for scale, sweeps in (("smoke", ()), ("paper", plan_counts("edbatch_fig9", choices("paper")))):
        assert plan_counts("claims", choices(scale), only_decidable=True) == sweeps
