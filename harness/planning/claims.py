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
      scales: [smoke, paper]      # scales at which its grid has them and the number is shown
      decisive_scales: paper      # those scales that have the sizes of the claim
      quantity: instance_s        # column of harness/records/tidy.py, or batches (`bench-schedule`)
      numerator: {system: dynet_off} # the best value of a list counts at each point
      denominator: {system: dynet} # default: none, so that the quantity itself counts
      settings: {model: tree_lstm} # points of the grid; default: all
      best_over: batch_size       # optional: the best value over this key counts on each side
      substitution: nothing       # substitutes for the systems, data or device of the paper
    rule: {at_least: 2.7, quantifier: all, rationale: half of what is claimed on a log scale}

The published number is the one to which the rule refers; for a range it is the decisive end. It is
omitted if the paper gives no number. The threshold for a ratio is its square root, which is half of
it on a log scale. The threshold for a count is the published number, with allowance for rounding.

`unanswerable: REASON` replaces answer and rule if the claim cannot be measured here.

The rule is written before any measurement. It defines when the claim counts as reproduced: the
limits at_least, at_most or both hold for all points, any point, or their median. The verdict is
computed by plots/tables/claims.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Annotated

from harness.errors import ConfigError
from harness.planning.grid import EXPERIMENT, SCALES, Settings, expand
from harness.planning.sweep import Sweep
from harness.planning.yaml_files import list_choices, read_mapping
from harness.trials.spec import DEVICES
from harness.values.checked import Line, OneOf, Positive, check_value, read

ANY_DEVICE = "any"
ALL, ANY, MEDIAN = "all", "any", "median"
BATCHES = "batches"  # quantity that is counted, not timed
BOUND = "bound"  # value of `policy` that selects the lower bound of batches
MAX_CLAIM_CHARS = 72  # characters of a claim, so that it fits into a table row

Wanted = Mapping[str, tuple[str, ...]]  # key of a grid -> selected values, as text


@dataclass(frozen=True, slots=True)
class Rule:
    """Criterion for a claim to count as reproduced.

    Attributes:
        rationale: reason for the threshold.
        quantifier: points that have to satisfy the limits: all, any, or their median.

    Raises:
        ConfigError: for a rule without a limit, or with contradictory limits.
    """

    rationale: Line
    quantifier: Annotated[str, OneOf((ALL, ANY, MEDIAN))] = ALL
    at_least: Positive | None = None
    at_most: Positive | None = None

    def __post_init__(self) -> None:
        limits = [limit for limit in (self.at_least, self.at_most) if limit is not None]
        if not limits:
            raise ConfigError("rule has no limit; set at_least, at_most or both")
        if len(limits) == 2 and limits[0] > limits[1]:
            raise ConfigError(f"rule has at_least={limits[0]} above at_most={limits[1]}; swap them")


@dataclass(frozen=True, slots=True)
class Answer:
    """Selection of the trials or counts that answer a claim.

    Attributes:
        scales: scales that have such trials.
        decisive_scales: scales with the sizes of the claim; numbers at other scales are only shown.
        numerator: values, by key of the grid.
        denominator: values; empty if the quantity itself counts.
        settings: values of both sides; empty for all points.
        best_over: key over which the best value of each side counts.
        substitution: substitutes for the systems, data or device of the paper.

    Raises:
        ConfigError: for a missing or unknown value, and for a selection by dataset.
    """

    experiment: Line
    scales: tuple[str, ...]
    decisive_scales: tuple[str, ...]
    quantity: Line
    numerator: Wanted
    substitution: Line
    denominator: Wanted = field(default_factory=dict)
    settings: Wanted = field(default_factory=dict)
    best_over: Line | None = None

    def __post_init__(self) -> None:
        for scale in self.scales:
            check_value("answer.scales", scale, Annotated[str, OneOf(SCALES)])
        for scale in self.decisive_scales:
            check_value("answer.decisive_scales", scale, Annotated[str, OneOf(self.scales)])
        for name in ("scales", "decisive_scales", "numerator"):
            if not getattr(self, name):
                raise ConfigError(f"answer has no {name}; set it (see harness/planning/claims.py)")
        if "dataset" in {*self.numerator, *self.denominator, *self.settings}:
            raise ConfigError("answer selects by dataset, which may be a fallback; select by model")

    @property
    def counts_batches(self) -> bool:
        """True if batch counts answer the claim, not trials."""
        return self.quantity == BATCHES


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

    Raises:
        ConfigError: for a claim that is too long, or that has neither an answer with a rule nor
            `unanswerable`, or both.
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

    def is_answered_at(self, scale: str) -> bool:
        """Return whether the grid of this scale has trials or counts for the claim."""
        return self.answer is not None and scale in self.answer.scales

    def is_decided_at(self, scale: str) -> bool:
        """Return whether trials or counts at this scale have the sizes of the claim."""
        return self.answer is not None and scale in self.answer.decisive_scales


def read_claims(conf_dir: Path) -> tuple[Claim, ...]:
    """Read every claim of conf/claims, the oldest paper first.

    `check_claims` checks that the systems, experiments and values in them exist.

    Raises:
        ConfigError: for an invalid file, which the message names.
    """
    paths = sorted((conf_dir / "claims").glob("*.yaml"))
    claims = [_read(path) for path in paths]
    return tuple(sorted(claims, key=lambda claim: (claim.year, claim.paper, claim.name)))


@dataclass(frozen=True, slots=True)
class _Published:
    """Content of a file's key `published`."""

    text: Line
    number: Positive | None = None
    table: Line | None = None


def _read(path: Path) -> Claim:
    content = read_mapping(path)
    try:
        published = read(_Published, content.pop("published", None), "published.")
        answer, rule = content.pop("answer", None), content.pop("rule", None)
        values = {
            "name": path.stem,
            "published": published.text,
            "number": published.number,
            "table": published.table,
            "answer": None
            if answer is None
            else read(Answer, _normalize_answer(answer), "answer."),
            "rule": None if rule is None else read(Rule, rule, "rule."),
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
    for name in {"scales", "decisive_scales"} & normalized.keys():
        normalized[name] = _to_texts(normalized[name])
    for side in set(SIDES) & normalized.keys():
        if isinstance(normalized[side], Mapping):
            normalized[side] = {
                str(key): _to_texts(value) for key, value in normalized[side].items()
            }
    return normalized


def _to_texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value if isinstance(value, list) else [value]))


SIDES = ("numerator", "denominator", "settings")
_COUNTED = ("model", "model.options.type_seed", "split", "batch_size", "granularity", "policy")
_DEFAULTS = {"split": "train", "granularity": "vertex", "model.options.type_seed": "0"}
# Keys that determine the measured mini-batches; other keys of timing determine the duration.
_WHAT = {"timing.n_mini_batches", "timing.n_instances"}
_EQUALLY_LONG = ("bilstm_synthetic", "complete_trees", "ptb_fixed")  # prefixes of dataset names


@dataclass(frozen=True, slots=True)
class Comparison:
    """One point of a claim.

    Attributes:
        settings: settings that both sides share.
        numerator: indices of its settings in a list of settings.
        denominator: indices of its settings; empty if the quantity itself counts.
    """

    settings: Settings
    numerator: tuple[int, ...]
    denominator: tuple[int, ...]


def find_comparisons(answer: Answer, settings: Sequence[Settings]) -> tuple[Comparison, ...]:
    """Return every point for which the settings have all sides of a claim."""
    sides = {"numerator": answer.numerator}
    if answer.denominator:
        sides["denominator"] = answer.denominator
    indices: dict[tuple[tuple[str, str], ...], dict[str, list[int]]] = {}
    shared: dict[tuple[tuple[str, str], ...], Settings] = {}
    for index, point in enumerate(settings):
        if not _fits(point, answer.settings):
            continue
        rest = _rest(answer, point)
        key = tuple(sorted((name, str(value)) for name, value in rest.items()))
        for side, wanted in sides.items():
            if _fits(point, wanted) and (point.get("policy") is None or "policy" in wanted):
                indices.setdefault(key, {name: [] for name in sides})[side].append(index)
                shared.setdefault(key, rest)
    return tuple(
        Comparison(shared[key], tuple(places["numerator"]), tuple(places.get("denominator", ())))
        for key, places in indices.items()
        if all(places.values())
    )


def _fits(settings: Settings, wanted: Wanted) -> bool:
    return all(str(settings.get(key)) in values for key, values in wanted.items())


def _rest(answer: Answer, settings: Settings) -> dict[str, object]:
    """Return the settings that both sides of a point share, without the measuring time.

    The number of mini-batches or instances is shared, too, with two exceptions: all instances of
    the dataset have the same size, or the best batch size counts.
    """
    left_out = {EXPERIMENT, answer.best_over, *answer.numerator, *answer.denominator}
    left_out |= {key for key in settings if key.startswith("timing.") and key not in _WHAT}
    is_alike = str(settings.get("dataset")).startswith(_EQUALLY_LONG)
    if is_alike or answer.best_over == "batch_size":
        left_out |= _WHAT
    return {key: value for key, value in settings.items() if key not in left_out}


def expand_sweeps(sweeps: Sequence[Sweep]) -> Iterator[Settings]:
    """Yield the settings of every count of the sweeps, and of every lower bound."""
    for sweep in sweeps:
        values = [sweep.get_values(key, _DEFAULTS.get(key, "")) for key in _COUNTED[:-1]]
        for point in product(*values, (*sweep.get_values("policy"), BOUND)):
            yield dict(zip(_COUNTED, point, strict=True))


def check_claims(claims: Sequence[Claim], conf_dir: Path) -> None:
    """Raise ConfigError if a claim names a system, an experiment or a value that does not exist."""
    systems = list_choices("system", conf_dir)
    for claim in claims:
        if claim.answer is not None:
            try:
                _check_systems(claim.answer, systems)
                _check_points(claim.answer, conf_dir)
            except ConfigError as error:
                raise ConfigError(f"claims/{claim.name}.yaml: {error}") from error


def _check_systems(answer: Answer, systems: Sequence[str]) -> None:
    for wanted in (answer.numerator, answer.denominator, answer.settings):
        for name in wanted.get("system", ()):
            if name not in systems:
                raise ConfigError(
                    f"answer has unknown system {name}; choose one of {', '.join(systems)}"
                )


def _check_points(answer: Answer, conf_dir: Path) -> None:
    """Raise ConfigError unless every scale has a point and every value occurs at a scale."""
    what = "counts" if answer.counts_batches else "trials"
    known: dict[str, dict[str, None]] = {}
    for scale in answer.scales:
        grid = expand(answer.experiment, scale, conf_dir)
        if grid.of_claims or grid.trials_of:
            raise ConfigError(
                f"answer has experiment {answer.experiment}, which shows trials of others;"
                " choose one that measures"
            )
        settings = list(expand_sweeps(grid.sweeps)) if answer.counts_batches else grid.settings
        for point in settings:
            for key, value in point.items():
                known.setdefault(key, {})[str(value)] = None
        if not find_comparisons(answer, settings):
            sides = ", ".join(f"{side} {_format_wanted(getattr(answer, side))}" for side in SIDES)
            raise ConfigError(
                f"experiment {answer.experiment} has no {what} at scale {scale} that match {sides};"
                " fix them or remove the scale"
            )
    location = f"experiment {answer.experiment} at scale {' or '.join(answer.scales)}"
    for key, value in (pair for side in SIDES for pair in _flatten_wanted(getattr(answer, side))):
        if value not in known.get(key, ()):
            choices = ", ".join(known.get(key) or known)
            raise ConfigError(
                f"{location} has no {what} with {key}={value}; choose one of {choices}"
            )


def _flatten_wanted(wanted: Wanted) -> Iterator[tuple[str, str]]:
    return ((key, value) for key, values in wanted.items() for value in values)


def _format_wanted(wanted: Mapping[str, tuple[str, ...]]) -> str:
    return " ".join(f"{key}={','.join(values)}" for key, values in wanted.items()) or "nothing"
