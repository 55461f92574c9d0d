"""Claims of papers: measured numbers, and verdicts by the rules of conf/claims.

The table has a row for each claim (harness/planning/claims.py); its CSV also has each point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dynbatch.harness.planning.claim_points import BOUND, STEP, Answer, find_comparisons
from dynbatch.harness.planning.claims import (
    ALL,
    ANY,
    ANY_DEVICE,
    AVERAGES,
    EACH_STEP,
    MEAN,
    MEDIAN,
    NO_EFFECT,
    Claim,
    Rule,
)
from dynbatch.harness.planning.grid import EXPERIMENT
from dynbatch.harness.records.numbers import NOT_MEASURED, RATIO, numbers, ratios, select_fastest
from dynbatch.harness.records.stats import INTERVAL_ROUNDS, name_interval
from dynbatch.harness.records.tidy import RELEASED, TYPE_SEED
from dynbatch.plots.captions import build_only_table
from dynbatch.plots.declaration import check_quantity
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.tables.cells import (
    COUNTED,
    DAGGER,
    EN_DASH,
    Table,
    format_plain,
    format_significant,
)

REPRODUCED, NOT_REPRODUCED = "reproduced", "not reproduced"
IN_PART = "in part"  # an effect in the claimed direction that does not reach the claimed range
NOT_SHOWN = "not shown"  # the interval contains a threshold: two verdicts may be true
NOT_MEASURABLE = "not measurable here"
NEEDS = {"cuda": "needs CUDA", "cpu": "needs a CPU"}
COUNT_KEYS = ["model", TYPE_SEED, "split", "batch_size", "granularity", "policy"]
QUANTIFIERS = {
    ALL: "all points",
    ANY: "any point",
    MEDIAN: "the median",
    MEAN: "the mean",
    EACH_STEP: "any point of each step",
}
VERDICTS = (NOT_REPRODUCED, IN_PART, REPRODUCED)  # by level
COMPARED = "compared"  # column of both sides of a ratio of two quantities
MIN_ROUNDS = 3  # of a timed point with a verdict


def build(experiment: Experiment) -> list[Table]:
    """Build the table: a row per claim, the oldest paper first."""
    experiment.declaration.read_keys("table")
    judged = [judge(claim, experiment) for claim in experiment.claims]
    rows = [row for first, points in judged for row in (first, *points.to_dict("records"))]
    results = pd.DataFrame(rows).drop(columns=["settings", "weak_build", "unsupported"])
    return build_only_table(experiment, results, arrange(judged), is_text=True)


def judge(claim: Claim, experiment: Experiment) -> tuple[dict[str, Any], pd.DataFrame]:
    """Judge a claim by the records and counts of an experiment of claims.

    Returns:
        The claim's row, with its verdict and the number that decides, or the status of the point
        that prevents a decision; and a row for each point, as from `evaluate_points`.
    """
    answer, rule, scale = claim.answer, claim.rule, experiment.scale
    points = pd.DataFrame(columns=["settings", "value", "low", "high", "device"])
    deciding = pd.Series({"value": np.nan, "warnings": "", "status": NOT_MEASURABLE})
    verdict, reason = NOT_MEASURABLE, "not measured yet"
    if answer is None or rule is None:
        reason = claim.unanswerable or ""
    elif scale not in claim.answered_at:
        reason = f"not in the grid of {scale} scale"
    elif len(evaluated := evaluate_points(claim, answer, experiment)):
        points = evaluated
        deciding, verdict = decide(rule, points, NO_EFFECT if answer.is_ratio else None)
        is_explained = verdict in (NOT_REPRODUCED, IN_PART)
        reason = (claim.explanation or "") * is_explained
        if verdict == NOT_MEASURABLE:
            reason = deciding.status
        if verdict == NOT_SHOWN and deciding.n_rounds < MIN_ROUNDS:
            reason = f"a verdict needs {MIN_ROUNDS} rounds"
        if obstacle := find_obstacle(claim, points, scale):
            verdict, reason = NOT_MEASURABLE, obstacle
        if verdict == NOT_MEASURABLE and claim.device == "cuda":
            reason = "; ".join([reason, *points.unsupported.dropna().unique()])
    first = {
        **{"claim": claim.name, "point": "deciding", "text": claim.claim, "authors": claim.authors},
        **{"paper": claim.paper, "location": claim.location, "conditions": claim.conditions},
        **{"claimed_for": claim.device, "published": claim.published, "number": claim.number},
        "measured_over_claimed": deciding.value / (claim.number or np.nan),
        "substitution": answer.substitution if answer else None,
        "quantity": " over ".join(dict.fromkeys(answer.quantities)) if answer else None,
        "rule": describe_rule(rule) if rule else None,
        "rationale": rule.rationale if rule else None,
        **deciding,
        "device": " ".join(points.device.dropna().unique()),
        **{"verdict": verdict, "reason": reason},
    }
    texts = [
        " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in settings.items())
        for settings in points.settings
    ]
    return first, points.assign(claim=claim.name, point=texts)


def find_obstacle(claim: Claim, points: pd.DataFrame, scale: str) -> str:
    """Return the reason why numbers of this device, scale or build cannot decide; empty if none."""
    devices, weak = set(points.device.dropna()), points.weak_build.dropna()
    if claim.device != ANY_DEVICE and devices and devices != {claim.device}:
        return NEEDS[claim.device]
    if scale not in claim.decided_at:
        return "needs the paper's sizes"
    return f"needs the best build and kernels: {weak.iloc[0]}" if len(weak) else ""


def evaluate_points(claim: Claim, answer: Answer, experiment: Experiment) -> pd.DataFrame:
    """Compute a number for each point from the fastest trial, or fewest batches, of each side.

    A side with a member that was planned and not measured has no number.

    Returns:
        Rows of `numbers`, with `settings` (a mapping of the settings that both sides share),
        `device`, `weak_build`, and `unsupported` (systems that could not run, with the reasons).
        The status of a failure names its system or policy.
    """
    if answer.counts_batches:
        rows, quantity, name = select_counts(experiment), "n_batches", "policy"
        settings: list[Any] = [
            {key: value for key, value in row.items() if pd.notna(value)}
            for row in rows.reindex(columns=COUNT_KEYS).astype(object).to_dict("records")
        ]
    else:
        rows, quantity, name = experiment.rows, answer.quantity, "system"
        for each in answer.quantities:
            check_quantity(f"claims/{claim.name}.yaml", each)
        own = {EXPERIMENT: answer.experiment}.items()
        settings = [trial if own <= trial.items() else {} for trial in experiment.settings]
    columns = ["settings", "numerator", "denominator"]
    pairs = pd.DataFrame(find_comparisons(answer, settings), columns=columns)
    members = pairs.rename_axis("place").reset_index().melt(["place", "settings"], var_name="side")
    points = members.explode("value").dropna().astype({"value": int})
    rows = rows[[name for name in rows if "." not in str(name)]]  # options are not used
    # A trial belongs to several points and has several rounds.
    placed = points.merge(rows, left_on="value", right_on="point", validate="m:m")
    best = select_best(placed, ["place", "side"])
    is_named = best.status != "ok"
    best["status"] = best.status.mask(is_named, best[name] + " " + best.status)
    numerator, denominator = best[best.side == "numerator"], best[best.side == "denominator"]
    if answer.is_ratio and answer.numerator_quantity:
        above, below = answer.quantities
        numerator = numerator.assign(**{COMPARED: numerator[above]})
        denominator = denominator.assign(**{COMPARED: denominator[below]})
        quantity = COMPARED
    if answer.is_ratio:
        numerator = ratios(numerator, denominator, ["place"], quantity)
    results = numbers(numerator, ["place"], RATIO if answer.is_ratio else quantity)
    results = results.sort_values("place")
    if quantity in COUNTED:  # exact under any background load
        results = results.assign(low=results.value, high=results.value, warnings="")
    facts = best[best.trial_id.notna()].reindex(columns=["device", "weak_build"]).replace("", None)
    results = results.join(facts.groupby(best.place).first(), on="place", validate="1:1")
    results = results.join(pairs["settings"], on="place", validate="1:1")
    results = results.join(describe_unsupported(placed), on="place", validate="1:1")
    return results.drop(columns=["place", "quantity"])


def select_best(placed: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Select the best member of each side, or one that was not measured: it may be the best."""
    missing = placed[placed.status == NOT_MEASURED].drop_duplicates(keys)
    sides = pd.MultiIndex.from_frame(placed[keys])
    is_complete = ~sides.isin(pd.MultiIndex.from_frame(missing[keys]))
    return pd.concat([select_fastest(placed[is_complete], keys), missing], ignore_index=True)


def describe_unsupported(placed: pd.DataFrame) -> pd.Series:
    """Describe, by `place`, the systems that could not run, and what to install."""
    rows = placed[(placed.status == "unsupported") & (placed.kind == "trial")]
    rows = rows.drop_duplicates(["place", "system"])
    texts = rows.system + " could not run: " + rows.reason
    return texts.groupby(rows.place).agg("; ".join).rename("unsupported")


def select_counts(experiment: Experiment) -> pd.DataFrame:
    """Select the counts of ED-Batch's released graph, with the lower bound as one more policy.

    Planned counts without a record are included. The bound is that of any policy.
    """
    counts = experiment.counts
    counts = counts[(counts.graph == RELEASED) & (counts.mini_batch == 0)]
    counts = counts[counts.trial_id.isna() | ~counts.duplicated("trial_id")]
    bounds = counts.assign(policy=BOUND, n_batches=counts.lower_bound).sort_values("n_batches")
    bounds = bounds.drop_duplicates([key for key in COUNT_KEYS if key in bounds])
    rows = pd.concat([counts, bounds], ignore_index=True)
    # The "fastest" count is the one with the fewest batches.
    return rows.assign(point=rows.index, throughput=-rows.n_batches)


def decide(
    rule: Rule, points: pd.DataFrame, no_effect: float | None = None
) -> tuple[pd.Series, str]:
    """Return the number that decides, or a point without a number, and the verdict.

    Each end of an interval has a level (an index of VERDICTS), so that an interval without a
    threshold has one level. All points have the level of the worst one, any point that of the best.
    A point without a number may have any level: there is a verdict only if no number of that point
    could change it.

    Args:
        no_effect: number without an effect in any direction; None: no verdict is "in part".
    """
    measured, failed = points[points.status == "ok"], points[points.status != "ok"]
    if measured.empty or (rule.quantifier in AVERAGES and len(failed)):
        return failed.iloc[0], NOT_MEASURABLE
    if rule.quantifier in AVERAGES:
        measured = take_average(measured, rule.quantifier)
    ranked = rank_points(rule, measured, no_effect)
    unknown = failed.assign(least=0, most=len(VERDICTS) - 1)
    both = pd.concat([ranked, unknown], ignore_index=True)
    steps = pd.Series(both.index)  # of points of which one suffices; by default each is alone
    if rule.quantifier == ANY:
        steps[:] = 0
    elif rule.quantifier == EACH_STEP:
        steps = pd.Series([settings[STEP] for settings in both.settings])
    least, most = both.groupby(steps)[["least", "most"]].max().min()
    best = ranked.groupby(steps).tail(1)
    levels = ["least", "most", "margin"]
    deciding = best.sort_values(levels, kind="stable").iloc[0].drop(levels)  # the worst
    if least == most:
        return deciding, VERDICTS[least]
    return (failed.iloc[0], NOT_MEASURABLE) if len(failed) else (deciding, NOT_SHOWN)


def rank_points(rule: Rule, points: pd.DataFrame, no_effect: float | None) -> pd.DataFrame:
    """Return points, the best last, with the lowest and highest level of their intervals.

    A number in the range has level 2, one on its side of `no_effect` 1, any other 0.

    Returns:
        The points with `least`, `most`, and `margin`, by which the worst end satisfies the rule.
    """
    low, high = widen_intervals(points)
    # The third is in the range if any number of the interval is.
    ends = np.stack([low, high, np.clip(rule.lowest, low, high)])
    neutral = math.nan if no_effect is None else no_effect
    is_within = (ends >= rule.lowest) & (ends <= rule.highest)
    is_partly = (ends < rule.lowest) & (ends > neutral)
    is_partly |= (ends > rule.highest) & (ends < neutral)
    levels = np.select([is_within, is_partly], [2, 1], 0)
    with np.errstate(invalid="ignore"):  # without an upper limit, and for few rounds
        margin = np.fmin(low / (rule.lowest or np.nan), rule.highest / high)
    ranked = points.assign(least=levels.min(axis=0), most=levels.max(axis=0), margin=margin)
    return ranked.sort_values(["most", "least", "margin"], kind="stable", ignore_index=True)


def widen_intervals(points: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of intervals that decide, also for few rounds.

    The range of three rounds misses their true median in one of four cases. Widened by its width on
    both sides, it is about Student's 95 % interval. One or two rounds are compatible with any
    number. Exact counts have no width.
    """
    low, high = (points[end].fillna(points.value).to_numpy(float) for end in ("low", "high"))
    is_exact, n_rounds = points.low.eq(points.high), points.n_rounds
    conditions = [is_exact, n_rounds < MIN_ROUNDS, n_rounds < INTERVAL_ROUNDS]
    margin = np.select(conditions, [np.zeros_like(low), np.full_like(low, math.inf), high - low])
    return low - margin, high + margin


def take_average(points: pd.DataFrame, quantifier: str) -> pd.DataFrame:
    """Return the means or medians of values and of both ends; no interval if any point has none.

    The mean of the ends is an interval of the mean even if the errors of all points are alike.
    """
    ends = points[["value", "low", "high"]].agg(quantifier, skipna=False)
    n_rounds = int(points.n_rounds.min())
    warnings = " ".join(sorted({*" ".join(points.warnings).split()}))
    facts = {"n_rounds": n_rounds, "interval": name_interval(n_rounds), "status": "ok"}
    facts["is_partial"] = bool(points.is_partial.any())
    return pd.DataFrame([{**ends, **facts, "warnings": warnings}])


def arrange(judged: Sequence[tuple[Mapping[str, Any], pd.DataFrame]]) -> pd.DataFrame:
    rows = [
        {
            ("paper", "source"): f"{first['paper']}, {first['location']}",
            ("paper", "number"): first["published"],
            ("here", "number"): format_deciding(first),
            ("here", "measured / claimed"): format_significant(first["measured_over_claimed"]),
            ("here", "range"): format_range(points),
            ("here", "points"): str(len(points) or EN_DASH),
            ("here", "measured on"): first["device"].upper() or EN_DASH,
            ("verdict", "reproduced if"): first["rule"] or EN_DASH,
            ("verdict", "result"): first["verdict"]
            + f" ({first['reason']})" * bool(first["reason"]),
        }
        for first, points in judged
    ]
    return pd.DataFrame(rows, index=pd.Index([first["text"] for first, _ in judged], name="claim"))


def format_deciding(first: Mapping[str, Any]) -> str:
    """Format the number that decides, with the number of rounds if they are not all measured."""
    text = f"{format_significant(first['value'])}{DAGGER * bool(first['warnings'])}"
    is_partial = bool(first.get("is_partial")) and not math.isnan(first["value"])
    return f"{text} [{first['n_rounds']:.0f}]" if is_partial else text


def format_range(points: pd.DataFrame) -> str:
    """Format the lowest and the highest end of all intervals; a dash if there is one number."""
    low, high = points.low.fillna(points.value).min(), points.high.fillna(points.value).max()
    return f"{format_significant(low)} to {format_significant(high)}" if low < high else EN_DASH


def describe_rule(rule: Rule) -> str:
    """Describe the limits, the tolerance and the quantifier of a rule."""
    limits = {"at least": rule.at_least, "at most": rule.at_most}
    texts = [f"{word} {format_plain(limit)}" for word, limit in limits.items() if limit]
    tolerance = f" (tolerance {format_plain(rule.tolerance)})" if rule.tolerance else ""
    return f"{' and '.join(texts)}{tolerance}, {QUANTIFIERS[rule.quantifier]}"
