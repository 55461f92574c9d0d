"""Points of a claim of a paper: the trials or batch counts that its answer compares.

A claim is answered at a scale whose grid has points for it. It is decided at a scale if these are
its points at the paper scale, whatever the measuring time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, product
from pathlib import Path

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.grid import EXPERIMENT, Settings, expand, read_experiment
from dynbatch.harness.planning.sweep import Sweep
from dynbatch.harness.values.checked import Line

BATCHES = "batches"  # quantity that is counted, not timed
BOUND = "bound"  # value of `policy` that selects the lower bound of batches
ROUNDS = "rounds"  # key of a point's settings that replaces the number of rounds of its grid
STEP = "step"  # key of a point's settings that names the value after its step
PAPER = "paper"  # scale that has every point of every claim
SIDES = ("numerator", "denominator", "steps", "settings", "without")
Wanted = Mapping[str, tuple[str, ...]]  # key of a grid -> selected values, as text


@dataclass(frozen=True, slots=True)
class Answer:
    """Selection of the trials or counts that answer a claim.

    Attributes:
        numerator: values, by key of the grid.
        denominator: values; empty if the quantity itself counts.
        numerator_quantity: quantity of the numerator if it differs from that of the denominator.
        steps: values of one key, in their order, in place of both sides.
        settings: values of both sides; empty for all points.
        without: values of points that do not count, because the paper has no number for them: those
            with all of them; empty for none.
        best_over: key over which the best value of each side counts.
        substitution: substitutes for the systems, data or device of the paper.
    """

    experiment: Line
    quantity: Line
    substitution: Line
    numerator: Wanted = field(default_factory=dict)
    denominator: Wanted = field(default_factory=dict)
    numerator_quantity: Line | None = None
    steps: Wanted = field(default_factory=dict)
    settings: Wanted = field(default_factory=dict)
    without: Wanted = field(default_factory=dict)
    best_over: Line | None = None

    def __post_init__(self) -> None:
        if bool(self.numerator) == bool(self.steps):
            raise ConfigError(
                "expected either numerator or steps in answer; set one (see"
                " harness/planning/claims.py)"
            )
        if self.steps and (self.denominator or len(self.steps) > 1):
            raise ConfigError("answer.steps replaces both sides by values of one key; fix the keys")
        if self.numerator_quantity is not None and not self.denominator:
            raise ConfigError("answer.numerator_quantity needs a denominator; set it, or remove it")
        if any(len(values) < 2 for values in self.steps.values()):
            raise ConfigError("answer.steps has no step; set at least two values")
        if any("dataset" in getattr(self, side) for side in SIDES):
            raise ConfigError("answer selects by dataset, which may be a fallback; select by model")

    @property
    def counts_batches(self) -> bool:
        return self.quantity == BATCHES

    @property
    def quantities(self) -> tuple[str, str]:
        """Return the quantities of numerator and denominator."""
        return self.numerator_quantity or self.quantity, self.quantity

    @property
    def is_ratio(self) -> bool:
        """True if a ratio answers the claim, not the quantity itself."""
        return bool(self.denominator or self.steps)

    def split_steps(self) -> tuple[tuple[str, Wanted, Wanted], ...]:
        """Return numerator and denominator of each step, after its name; one without steps."""
        if not self.steps:
            return (("", self.numerator, self.denominator),)
        ((key, values),) = self.steps.items()
        return tuple(
            (after, {key: (before,)}, {key: (after,)}) for before, after in pairwise(values)
        )


_COUNTED = ("model", "model.options.type_seed", "split", "batch_size", "granularity", "policy")
_DEFAULTS = {"split": "train", "granularity": "vertex", "model.options.type_seed": "0"}
# Keys that determine the measured mini-batches; other keys of timing determine the duration.
_WHAT = {"timing.n_mini_batches", "timing.n_instances"}
EQUALLY_LONG = ("bilstm_synthetic", "complete_trees", "ptb_fixed")  # prefixes of dataset names


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
    """Return every point for which the settings have all sides of a claim, step by step."""
    steps = (_compare_sides(answer, *step, settings) for step in answer.split_steps())
    return tuple(chain.from_iterable(steps))


def _compare_sides(
    answer: Answer, step: str, numerator: Wanted, denominator: Wanted, settings: Sequence[Settings]
) -> Iterator[Comparison]:
    sides = {"numerator": numerator} | ({"denominator": denominator} if denominator else {})
    indices: dict[tuple[tuple[str, str], ...], dict[str, list[int]]] = {}
    shared: dict[tuple[tuple[str, str], ...], Settings] = {}
    for index, point in enumerate(settings):
        if not _fits(point, answer.settings) or (answer.without and _fits(point, answer.without)):
            continue
        rest = _select_shared(answer, point)
        key = tuple(sorted((name, str(value)) for name, value in rest.items()))
        for side, wanted in sides.items():
            if _fits(point, wanted) and (point.get("policy") is None or "policy" in wanted):
                indices.setdefault(key, {name: [] for name in sides})[side].append(index)
                shared.setdefault(key, {**rest, STEP: step} if step else rest)
    for key, places in indices.items():
        if all(places.values()):
            yield Comparison(
                shared[key], tuple(places["numerator"]), tuple(places.get("denominator", ()))
            )


def _fits(settings: Settings, wanted: Wanted) -> bool:
    return all(str(settings.get(key)) in values for key, values in wanted.items())


def _select_shared(answer: Answer, settings: Settings) -> dict[str, object]:
    """Return the settings that both sides of a point share, without rounds and measuring time.

    The number of mini-batches or instances is shared, too, with two exceptions: all instances of
    the dataset have the same size, or the best batch size counts.
    """
    left_out = {EXPERIMENT, answer.best_over, *answer.numerator, *answer.denominator, *answer.steps}
    left_out |= {key for key in settings if _is_effort(key) and key not in _WHAT}
    is_alike = str(settings.get("dataset")).startswith(EQUALLY_LONG)
    if is_alike or answer.best_over == "batch_size":
        left_out |= _WHAT
    return {key: value for key, value in settings.items() if key not in left_out}


def expand_sweeps(sweeps: Sequence[Sweep]) -> Iterator[Settings]:
    """Yield the settings of every count of the sweeps, and of every lower bound."""
    for sweep in sweeps:
        values = [sweep.get_values(key, _DEFAULTS.get(key, "")) for key in _COUNTED[:-1]]
        for point in product(*values, (*sweep.get_values("policy"), BOUND)):
            yield dict(zip(_COUNTED, point, strict=True))


# Points by scale of experiments that were expanded; true: batch counts.
PointsOf = dict[tuple[str, bool], dict[str, tuple[Settings, ...]]]
_Member = tuple[str, frozenset[tuple[str, str]]]  # side of a comparison, and settings of a trial


def find_scales(
    answer: Answer, conf_dir: Path, points: PointsOf
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the scales that answer a claim, and those that decide it.

    Args:
        points: expanded experiments, to which this function adds.

    Raises:
        ConfigError: for an unknown experiment or one that shows trials of others, and unless the
            paper scale has a point and every value occurs at a scale that answers the claim.
    """
    key = answer.experiment, answer.counts_batches
    if key not in points:
        scales = read_experiment(answer.experiment, conf_dir)["scales"]
        grids = [expand(answer.experiment, scale, conf_dir) for scale in scales]
        if any(grid.of_claims or grid.trials_of for grid in grids):
            raise ConfigError(
                f"answer has experiment {answer.experiment}, which shows trials of others;"
                " choose one that measures"
            )
        points[key] = {
            grid.scale: tuple(expand_sweeps(grid.sweeps)) if key[1] else grid.settings
            for grid in grids
        }
    compared = {scale: _list_members(answer, at) for scale, at in points[key].items()}
    answered = tuple(scale for scale, members in compared.items() if members)
    _check_values(answer, {scale: points[key][scale] for scale in answered})
    return answered, tuple(scale for scale in answered if compared[scale] == compared[PAPER])


def _check_values(answer: Answer, points: Mapping[str, Sequence[Settings]]) -> None:
    what = "counts" if answer.counts_batches else "trials"
    if PAPER not in points:
        sides = ", ".join(f"{side} {_format_wanted(getattr(answer, side))}" for side in SIDES)
        raise ConfigError(
            f"experiment {answer.experiment} has no {what} at scale {PAPER} that match {sides};"
            " fix them"
        )
    known: dict[str, dict[str, None]] = {}
    for point in chain.from_iterable(points.values()):
        for key, value in point.items():
            known.setdefault(key, {})[str(value)] = None
    for key, values in chain.from_iterable(getattr(answer, side).items() for side in SIDES):
        for value in values:
            if value not in known.get(key, ()):
                choices = ", ".join(known.get(key) or known)
                raise ConfigError(
                    f"experiment {answer.experiment} at scale {' or '.join(points)} has no {what}"
                    f" with {key}={value}; choose one of {choices}"
                )


def _format_wanted(wanted: Wanted) -> str:
    return " ".join(f"{key}={','.join(values)}" for key, values in wanted.items()) or "nothing"


def _list_members(answer: Answer, settings: Sequence[Settings]) -> frozenset[_Member]:
    """Return the trials of every point without their rounds and measuring time."""
    return frozenset(
        (f"{side} {pair.settings.get(STEP, '')}", _drop_effort(settings[index]))
        for pair in find_comparisons(answer, settings)
        for side, places in (("numerator", pair.numerator), ("denominator", pair.denominator))
        for index in places
    )


def _drop_effort(settings: Settings) -> frozenset[tuple[str, str]]:
    return frozenset((key, str(value)) for key, value in settings.items() if not _is_effort(key))


def _is_effort(key: str) -> bool:
    """Return whether a key tells how often or how long a point is measured."""
    return key == ROUNDS or key.startswith("timing.")
