"""Trials and batch counts of experiments, resolved for this machine's datasets and device."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dynbatch.harness.contracts.home import find_home
from dynbatch.harness.planning.claim_points import ROUNDS, find_comparisons
from dynbatch.harness.planning.claims import Claim, read_claims
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.grid import EXPERIMENT, Grid, Settings, expand
from dynbatch.harness.planning.nodes import choose_device, read_nodes
from dynbatch.harness.planning.overrides import format_override
from dynbatch.harness.planning.sweep import Sweep, hash_counting_code
from dynbatch.harness.planning.yaml_files import read_mapping
from dynbatch.harness.records.record import build_record_path
from dynbatch.harness.trials.sources import SourceHashes
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.values.paths import CONF_DIR, expand_home, find_data_root

CUDA_BUDGET = "4h"


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices of the user; equal choices lead to equal trials.

    Attributes:
        datasets: measured datasets, if records of another machine are drawn; None: the datasets
            that are available in data_root.
    """

    scale: str
    device: str
    threads: int
    data_root: Path
    results_dir: Path
    conf_dir: Path = CONF_DIR
    datasets: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """Trial of one point of a grid.

    Attributes:
        settings: settings of the point in its grid.
        all_settings: these settings and the choices of the user.
    """

    spec: TrialSpec
    settings: Settings
    all_settings: Settings
    rounds: int

    @property
    def trial_id(self) -> str:
        return self.spec.trial_id

    def to_spec(self, conf_dir: Path = CONF_DIR) -> TrialSpec:
        """Return the trial with the `bench` command that measures it."""
        where = [] if conf_dir == CONF_DIR else [f"--config-path={conf_dir}"]
        texts = (format_override(key, value) for key, value in self.all_settings.items())
        return replace(self.spec, command=shlex.join(["bench", *where, *texts]))

    def list_record_paths(self, results_dir: Path) -> tuple[Path, ...]:
        return tuple(
            build_record_path(results_dir, self.trial_id, round_) for round_ in range(self.rounds)
        )


def build_choices(
    config: Mapping[str, Any],
    environment: Mapping[str, str],
    datasets: frozenset[str] | None = None,
) -> Choices:
    """Build choices with defaults: scale medium if CUDA is available, else smoke."""
    device = config.get("device") or choose_device(read_nodes(config))
    root = config.get("data_root")
    return Choices(
        scale=str(config.get("scale") or ("medium" if device == "cuda" else "smoke")),
        device=str(device),
        threads=int(config.get("threads") or 1),
        data_root=expand_home("data_root", str(root)) if root else find_data_root(environment),
        results_dir=Path(config.get("results_dir") or "results"),
        conf_dir=Path(config.get("conf_dir") or CONF_DIR).resolve(),
        datasets=datasets,
    )


def choose_budget(config: Mapping[str, Any], device: str) -> str | None:
    """Return the time limit of a run; on a GPU of this machine, the default scale has a default."""
    is_default = device == "cuda" and not {"scale", "nodes", "records"} & config.keys()
    return config.get("budget") or (CUDA_BUDGET if is_default else None)


def describe_undecidable(choices: Choices) -> str:
    """Return a line with the number of claims that a run cannot decide, and why."""
    claims = read_claims(choices.conf_dir)
    reasons = Counter(claim.explain_undecidable(choices.scale, choices.device) for claim in claims)
    del reasons[None]  # of claims that it can decide
    parts = [f"{n} {reason}" for reason, n in reasons.most_common()]
    rest = f": {', '.join(parts)}" if parts else ""
    return f"{reasons.total()} of {len(claims)} claims cannot be decided by this run{rest}"


def plan_artifact(
    name: str, choices: Choices, composer: Composer, *, only_decidable: bool = False
) -> tuple[PlannedTrial, ...]:
    """Resolve one experiment's grid; equal points are one trial, with their maximum of rounds.

    Args:
        only_decidable: whether an experiment of claims has only the trials of those claims that the
            scale and device can decide.
    """
    grid = expand(name, choices.scale, choices.conf_dir)
    planned: dict[tuple[str, str], PlannedTrial] = {}
    for other, settings in _list_shown_points(grid, choices, only_decidable).items():
        whose = grid if other == name else expand(other, choices.scale, choices.conf_dir)
        for trial in _plan_trials(settings, whose, choices, composer):
            shown = replace(trial, settings={**trial.settings, EXPERIMENT: other})
            key, chosen = (other, trial.trial_id), trial if other == name else shown
            planned[key] = max(planned.get(key, chosen), chosen, key=lambda each: each.rounds)
    return tuple(planned.values())


def _list_shown_points(
    grid: Grid, choices: Choices, only_decidable: bool = False
) -> dict[str, Sequence[Settings]]:
    """Return the points that a grid shows, by experiment: its own points, or those of others."""
    if grid.trials_of:
        grids = (expand(other, choices.scale, choices.conf_dir) for other in grid.trials_of)
        return {other.name: other.settings for other in grids}
    if not grid.of_claims:
        return {grid.name: grid.settings}
    points: dict[str, Sequence[Settings]] = {}
    for name, claims in _group_claims(choices, only_decidable, counted=False).items():
        settings = expand(name, choices.scale, choices.conf_dir).settings
        pairs = [pair for c in claims if c.answer for pair in find_comparisons(c.answer, settings)]
        places = sorted({index for pair in pairs for index in (*pair.numerator, *pair.denominator)})
        points[name] = [settings[index] for index in places]
    return points


def _plan_trials(
    settings: Sequence[Settings], grid: Grid, choices: Choices, composer: Composer
) -> Iterator[PlannedTrial]:
    """Yield the trials of a grid's points, with fallbacks for datasets that are not available."""
    extra = {"device": choices.device, "threads": choices.threads}
    places = {"data_root": str(choices.data_root), "results_dir": str(choices.results_dir)}
    named = {str(point["dataset"]) for point in settings}
    available = {dataset: find_available(dataset, choices) for dataset in named}
    for point in settings:
        if point.get("device") == "cuda" != choices.device:
            continue  # for GPUs only
        chosen = {**point, "dataset": available[str(point["dataset"])]}
        own = chosen.pop(ROUNDS, None)
        rounds = grid.rounds if own is None else own
        # The experiment's settings take precedence: some compare systems on the CPU on any machine.
        whole = places | extra | chosen
        spec = composer.resolve_trial(whole | {ROUNDS: rounds})  # which refuses a wrong number
        yield PlannedTrial(spec, chosen, whole, rounds)


def plan_counts(name: str, choices: Choices, *, only_decidable: bool = False) -> tuple[Sweep, ...]:
    """Return the batch counts of one experiment, with fallbacks for unavailable datasets."""
    grid = expand(name, choices.scale, choices.conf_dir)
    if grid.of_claims:
        names = _group_claims(choices, only_decidable, counted=True)
        answering = (sweep for other in names for sweep in plan_counts(other, choices))
        return tuple({sweep.sweep_id: sweep for sweep in answering}.values())
    sweeps = []
    for sweep in grid.sweeps:
        datasets = (find_available(dataset, choices) for dataset in sweep.get_values("dataset"))
        available = {"dataset": tuple(dict.fromkeys(datasets))}
        sweeps.append(replace(sweep, settings={**sweep.settings, **available}))
    return tuple(sweeps)


def _group_claims(
    choices: Choices, only_decidable: bool, *, counted: bool
) -> dict[str, list[Claim]]:
    """Return the claims with an answer at this scale, by experiment.

    Args:
        counted: whether to return claims about batch counts, or those about trials.
    """
    groups: dict[str, list[Claim]] = {}
    for claim in read_claims(choices.conf_dir):
        answer, is_shown = claim.answer, choices.scale in claim.answered_at
        if only_decidable:
            is_shown = claim.explain_undecidable(choices.scale, choices.device) is None
        if answer and is_shown and answer.counts_batches == counted:
            groups.setdefault(answer.experiment, []).append(claim)
    return groups


def hash_sweep(sweep: Sweep, composer: Composer, hashes: SourceHashes | None = None) -> str:
    """Hash the code that counts: the counter and the models, loaders and policies of a sweep."""
    modules = set()
    for name in sweep.get_values("model"):
        modules.add(composer.compose_config({"system": "null", "model": name}).model.model)
    for name in sweep.get_values("dataset"):
        modules.add(composer.compose_config({"system": "null", "dataset": name}).dataset.loader)
    names = {value for values in sweep.settings.values() for value in values}
    return hash_counting_code(modules, names, hashes)


def is_here(dataset: str, choices: Choices) -> bool:
    """Return whether a dataset is generated, or its directory or required file is in data_root."""
    content = _read_dataset(dataset, choices)
    home = find_home(content["loader"]) if "loader" in content else None
    if home is None:
        return True
    folder = choices.data_root / home.folder
    probe_file = content.get("probe_file")
    return (folder / probe_file).is_file() if probe_file else folder.is_dir()


def find_fallbacks(name: str, choices: Choices) -> dict[str, str]:
    """Return the unavailable datasets of an experiment's trials, each with its fallback."""
    grid = expand(name, choices.scale, choices.conf_dir)
    shown = _list_shown_points(grid, choices).values()
    named = sorted({str(point["dataset"]) for settings in shown for point in settings})
    taken = {dataset: find_available(dataset, choices) for dataset in named}
    return {dataset: other for dataset, other in taken.items() if other != dataset}


def find_available(dataset: str, choices: Choices) -> str:
    """Return the first available dataset in the chain of fallbacks, else the dataset itself."""
    names: list[str] = []
    name: str | None = dataset
    while name is not None and name not in names:
        names.append(name)
        name = _read_dataset(name, choices).get("fallback")
    measured = choices.datasets
    if measured is not None:
        return next((name for name in names if name in measured), dataset)
    return next((name for name in names if is_here(name, choices)), dataset)


def _read_dataset(dataset: str, choices: Choices) -> dict[str, Any]:
    """Return a dataset's YAML; empty for an unknown name, which Composer rejects."""
    path = choices.conf_dir / "dataset" / f"{dataset}.yaml"
    return read_mapping(path, "loader") if path.is_file() else {}


def merge_equal_trials(trials: Iterable[PlannedTrial]) -> tuple[PlannedTrial, ...]:
    """Return each trial once, with its maximum of rounds."""
    asked: dict[str, list[PlannedTrial]] = {}
    for trial in trials:
        asked.setdefault(trial.trial_id, []).append(trial)
    return tuple(max(alike, key=lambda trial: trial.rounds) for alike in asked.values())
