"""What papers claim, what was measured for it here, and a verdict by a rule written before.

A row for each file of conf/claims (harness/planning/claims.py); its scales say `claims`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.planning.claims import ALL, ANY, BATCHES, Claim, Rule
from plots.numbers.artefact import Artefact
from plots.numbers.claims import Judged, PointOfClaim, check_shown, judged, shared_values
from plots.numbers.table import EN_DASH, Cell, Column, Table, plain, three_digits
from plots.numbers.tidy import Row
from plots.numbers.verdicts import ends
from plots.words.count_cells import table_of_rows
from plots.words.trial_cells import EXACT, numbers_of
from plots.writing.table import write_table_and_rows

COLUMNS = (
    Column("paper", "where", published=True),
    Column("paper", "number", published=True),
    Column("here", "number"),
    Column("here", "of claimed"),
    Column("here", "range"),
    Column("here", "on"),
    Column("verdict", "reproduced if"),
    Column("verdict", "it is"),
)
# Keys of a grid whose values tell how large a trial was, and how they are written.
SIZES = {"batch_size": "b", "hidden_size": "h", "dataset.options.n_leaves": "leaves"}
DEVICES = {"cpu": "CPU", "cuda": "GPU"}
OF_POINTS = {ALL: "all points", ANY: "any point", "median": "the median"}


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    check_shown(artefact.claims)
    found = [judged(claim, artefact) for claim in artefact.claims]
    write_table_and_rows(table_of(artefact, found), rows_of(found), results_dir / stem)


def table_of(artefact: Artefact, found: Sequence[Judged]) -> Table:
    """A row per claim, the oldest paper first."""
    return table_of_rows(
        artefact, "claim", COLUMNS, [(one.claim.claim, _cells(one)) for one in found]
    )


def _cells(one: Judged) -> tuple[Cell, ...]:
    claim = one.claim
    return (
        Cell(f"{claim.paper}, {claim.where}"),
        Cell(claim.published),
        _number(one),
        _of_claimed(one),
        Cell(range_words(one.points)),
        Cell(place_words(one.points)),
        Cell(rule_words(claim.rule) if claim.rule else EN_DASH),
        Cell(verdict_words(one)),
    )


def _number(one: Judged) -> Cell:
    """The number that decides; a dash where there is none, of which the verdict says why."""
    summary = one.deciding.summary
    if summary is None:
        return Cell(EN_DASH)
    is_exact = one.claim.answer is not None and one.claim.answer.quantity in EXACT
    return Cell(three_digits(summary.median), warned=bool(one.deciding.warnings) and not is_exact)


def _of_claimed(one: Judged) -> Cell:
    """The number that decides over the one that is claimed; a dash where either is none."""
    value = of_claimed(one)
    return Cell(EN_DASH if value is None else three_digits(value))


def of_claimed(one: Judged) -> float | None:
    """How many times the claimed number was measured."""
    summary, number = one.deciding.summary, one.claim.number
    return None if summary is None or number is None else summary.median / number


def range_words(points: Sequence[PointOfClaim]) -> str:
    """From the lowest end of an interval to the highest, over all points."""
    told = [ends(p.measured.summary) for p in points if p.measured.summary is not None]
    if not told:
        return EN_DASH
    low, high = min(low for low, _ in told), max(high for _, high in told)
    if low == high:
        return EN_DASH
    return f"{three_digits(low)} to {three_digits(high)}"


def place_words(points: Sequence[PointOfClaim]) -> str:
    """Device, sizes and number of points; a dash where nothing was measured."""
    if not points:
        return EN_DASH
    devices = dict.fromkeys(DEVICES[p.device] for p in points if p.device is not None)
    values = shared_values(points)
    sizes = [f"{word} {_span(values[key])}" for key, word in SIZES.items() if key in values]
    n_points = f"{len(points)} point{'s' if len(points) > 1 else ''}"
    return ", ".join([*devices, *sizes, n_points])


def _span(values: Sequence[object]) -> str:
    numbers = sorted(float(str(value)) for value in values)
    low, high = plain(numbers[0]), plain(numbers[-1])
    return low if low == high else f"{low} to {high}"


def rule_words(rule: Rule) -> str:
    """The rule in a few words."""
    if rule.at_least is not None and rule.at_most is not None:
        limits = f"{plain(rule.at_least)} to {plain(rule.at_most)}"
    elif rule.at_least is not None:
        limits = f"at least {plain(rule.at_least)}"
    else:
        limits = f"at most {plain(rule.at_most or 0)}"
    return f"{limits}, {OF_POINTS[rule.of_points]}"


def verdict_words(one: Judged) -> str:
    """The verdict, with why nobody can tell."""
    return f"{one.verdict} ({one.why})" if one.why else one.verdict


def rows_of(found: Sequence[Judged]) -> list[Row]:
    """A row per claim with the number that decides, then one for each of its points."""
    return [row for one in found for row in (_row(one), *_point_rows(one))]


def _row(one: Judged) -> Row:
    claim = one.claim
    return {
        "claim": claim.name,
        "point": "deciding",
        "words": claim.claim,
        "who": claim.who,
        "paper": claim.paper,
        "where": claim.where,
        "conditions": claim.conditions,
        "claimed_for": claim.device,
        "published": claim.published,
        "number": claim.number,
        "of_claimed": of_claimed(one),
        "stands_in": claim.answer.stands_in if claim.answer else None,
        "quantity": quantity_words(claim),
        "rule": rule_words(claim.rule) if claim.rule else None,
        "because": claim.rule.because if claim.rule else None,
        **numbers_of(one.deciding),
        "measured_on": " ".join(dict.fromkeys(p.device for p in one.points if p.device)),
        "verdict": one.verdict,
        "why": one.why,
    }


def quantity_words(claim: Claim) -> str | None:
    """What was divided by what."""
    answer = claim.answer
    if answer is None:
        return None
    name = answer.quantity if answer.quantity != BATCHES else "number of batches"
    sides = (answer.of, answer.over) if answer.over else (answer.of,)
    words = (
        " ".join(value for values in side.values() for value in ["/".join(values)])
        for side in sides
    )
    return f"{name}: {' over '.join(words)}"


def _point_rows(one: Judged) -> list[Row]:
    return [
        {
            "claim": one.claim.name,
            "point": " ".join(f"{key.rpartition('.')[2]}={v}" for key, v in point.at.items()),
            **numbers_of(point.measured),
            "measured_on": point.device,
        }
        for point in one.points
    ]
