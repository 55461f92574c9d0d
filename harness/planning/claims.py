"""Claims of papers, one per file conf/claims/<name>.yaml.

    claim: Batching makes a Tree-LSTM train 7 times as fast   # one line, in our own words
    authors: Neubig, Goldberg and Dyer
    paper: DyNet, NIPS 2017
    year: 2017
    location: Table 1                                         # in the paper
    conditions: SST, batch size 64, hidden size 256           # those of the paper
    device: cpu                   # device of the claim; any: a count, or claimed for both devices
    published: {text: "7.1", number: 7.1, table: dynet_table1} # table of plots/published
    answer:
      experiment: dynet_table1    # experiment whose trials, or batch counts, answer the claim
      quantity: instance_s        # column of harness/records/tidy.py, or batches (`bench-schedule`)
      numerator: {system: dynet_off} # the best value of a list counts at each point
      denominator: {system: dynet} # default: none, so that the quantity itself counts
      steps: {system: [a, b, c]}  # in place of both sides: each value is compared with the next one
      settings: {model: tree_lstm} # points of the grid; default: all
      without: {batch_size: 64}   # points without a number in the paper; default: none
      best_over: batch_size       # optional: the best value over this key counts on each side
      substitution: nothing       # substitutes for the systems, data or device of the paper
    rule: {at_least: 7.1, tolerance: 0.05, quantifier: all, rationale: "7.1, as rounded"}
    explanation: an older BLAS in the paper # after measuring: why it is not reproduced, or in part

The published number is the one to which the rule refers; for a range it is the decisive end. It is
omitted if the paper gives no number.

`unanswerable: REASON` replaces answer and rule if the claim cannot be measured here.

The rule is written before the measurement that it judges (docs/sources.md has the exceptions). It
is the range of the claimed number: at_least, at_most or both, widened by the tolerance. The
tolerance is half a unit of the last printed digit, and at most 10 % of the number; it is 10 % if
the paper gives "about" or gives a round number, and if the number was read off a figure. The claim
is reproduced if the range holds for all points, any point, any point of each step, or the mean or
the median of all points. It is reproduced in part if a ratio is on the claimed side of 1, which
means no effect, without reaching the range. The verdict is computed by plots/tables/claims.py.

harness/planning/claim_points.py finds the points of a claim, and the scales that decide it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.claim_points import SIDES, Answer, PointsOf, find_scales
from dynbatch.harness.planning.yaml_files import read_mapping
from dynbatch.harness.trials.spec import DEVICES
from dynbatch.harness.values.checked import Line, NotNegative, OneOf, Positive, read

ANY_DEVICE = "any"
ALL, ANY, MEDIAN, MEAN = "all", "any", "median", "mean"
AVERAGES = (MEDIAN, MEAN)
EACH_STEP = "each_step"  # quantifier: any point of each step
NO_EFFECT = 1.0  # ratio of two equal sides
MAX_CLAIM_CHARS = 72  # characters of a claim, so that it fits into a table row


@dataclass(frozen=True, slots=True)
class Rule:
    """Criterion for a claim to count as reproduced.

    Attributes:
        rationale: reason for the limits and the tolerance.
        quantifier: points that have to satisfy the limits: all, any, any of each step, or their
            median or mean.
        tolerance: amount by which both limits are relaxed.

    Raises:
        ConfigError: for a rule without a limit, with contradictory limits, or with a tolerance that
            leaves no limit.
    """

    rationale: Line
    quantifier: Annotated[str, OneOf((ALL, ANY, *AVERAGES, EACH_STEP))] = ALL
    at_least: Positive | None = None
    at_most: Positive | None = None
    tolerance: NotNegative = 0.0

    def __post_init__(self) -> None:
        limits = [limit for limit in (self.at_least, self.at_most) if limit is not None]
        if not limits:
            raise ConfigError("rule has no limit; set at_least, at_most or both")
        if len(limits) == 2 and limits[0] > limits[1]:
            raise ConfigError(f"rule has at_least={limits[0]} above at_most={limits[1]}; swap them")
        if self.tolerance >= limits[0]:
            raise ConfigError(
                f"rule has a wide tolerance: expected less than {limits[0]:g}, got"
                f" {self.tolerance:g}; reduce it"
            )

    @property
    def lowest(self) -> float:
        return 0.0 if self.at_least is None else round(self.at_least - self.tolerance, 9)

    @property
    def highest(self) -> float:
        return math.inf if self.at_most is None else round(self.at_most + self.tolerance, 9)


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim of one paper.

    Attributes:
        location: place in the paper, such as a table or section.
        device: device of the claim, or "any".
        published: the paper's result as text, without a unit.
        number: number of the result to which the rule refers; None: the claim is only a direction.
        table: table of plots/published with the number; None: it is in none.
        unanswerable: reason why no experiment here can answer it; None: it has answer and rule.
        explanation: differences from the paper's conditions that may be the reason for a verdict
            other than "reproduced"; None: it has no such verdict, or none was found.
        answered_at: scales whose grids have points of the claim.
        decided_at: scales whose grids have exactly the points of the paper scale.

    Raises:
        ConfigError: for a claim that is too long, that has neither an answer with a rule nor
            `unanswerable`, or both, or whose rule is for steps that it does not have.
    """

    name: str
    claim: Line
    authors: Line
    paper: Line
    year: int
    location: Line
    conditions: Line
    device: Annotated[str, OneOf((*DEVICES, ANY_DEVICE))]
    published: Line
    number: Positive | None = None
    table: Line | None = None
    answer: Answer | None = None
    rule: Rule | None = None
    unanswerable: Line | None = None
    explanation: Line | None = None
    answered_at: tuple[str, ...] = ()
    decided_at: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.claim) > MAX_CLAIM_CHARS:
            raise ConfigError(
                f"claim is too long: expected at most {MAX_CLAIM_CHARS} characters, got"
                f" {len(self.claim)}; move details to conditions"
            )
        has_answer = self.answer is not None and self.rule is not None
        if has_answer == (self.unanswerable is not None) or (
            (self.answer is None) != (self.rule is None)
        ):
            raise ConfigError("expected either answer and rule, or only unanswerable; fix the keys")
        has_steps = self.answer is not None and bool(self.answer.steps)
        if self.rule and has_steps != (self.rule.quantifier == EACH_STEP):
            raise ConfigError(f"expected steps with quantifier {EACH_STEP}; set both or neither")

    def explain_undecidable(self, scale: str, device: str) -> str | None:
        """Return why measurements at this scale, on this device, cannot decide it, or None."""
        if not self.decided_at:
            return "cannot be measured here"
        if self.device not in (ANY_DEVICE, device):
            return f"need device={self.device}"
        return None if scale in self.decided_at else f"need scale={self.decided_at[0]}"


def read_claims(conf_dir: Path) -> tuple[Claim, ...]:
    """Read every claim of conf/claims, the oldest paper first.

    Raises:
        ConfigError: for an invalid file, or one that names an experiment or a value that does not
            exist.
    """
    paths = sorted((conf_dir / "claims").glob("*.yaml"))
    points: PointsOf = {}
    claims = [_read(path, conf_dir, points) for path in paths]
    return tuple(sorted(claims, key=lambda claim: (claim.year, claim.paper, claim.name)))


@dataclass(frozen=True, slots=True)
class _Published:
    """Content of a file's key `published`."""

    text: Line
    number: Positive | None = None
    table: Line | None = None


def _read(path: Path, conf_dir: Path, points: PointsOf) -> Claim:
    content = read_mapping(path)
    try:
        published = read(_Published, content.pop("published", None), "published.")
        answer = content.pop("answer", None)
        parsed = None if answer is None else read(Answer, _normalize_answer(answer), "answer.")
        answered_at, decided_at = find_scales(parsed, conf_dir, points) if parsed else ((), ())
        values = {
            "name": path.stem,
            "published": published.text,
            "number": published.number,
            "table": published.table,
            "answered_at": answered_at,
            "decided_at": decided_at,
            "answer": parsed,
        }
        if clash := sorted(values.keys() & content.keys()):
            raise ConfigError(f"unknown key {clash[0]!r} of a claim; remove it")
        return read(Claim, {**content, **values}, owner="a claim")
    except ConfigError as error:
        raise ConfigError(f"claims/{path.name}: {error}") from error


def _normalize_answer(answer: object) -> object:
    """Return an answer whose single values are replaced by lists of texts."""
    if not isinstance(answer, Mapping):
        return answer
    normalized = dict(answer)
    for side in set(SIDES) & normalized.keys():
        if isinstance(normalized[side], Mapping):
            normalized[side] = {
                str(key): tuple(map(str, value if isinstance(value, list) else [value]))
                for key, value in normalized[side].items()
            }
    return normalized
