"""What the pipeline measures: every artefact's trials and counts, with their identity, here."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.contracts.home import home_of
from harness.planning.claims import Claim, check_claims, comparisons, read_claims
from harness.planning.config import Composer
from harness.planning.grid import EXPERIMENT, Grid, Settings, expand
from harness.planning.kinds import read_systems
from harness.planning.nodes import default_device, nodes_of
from harness.planning.ordering import SCREENED, screening_of_all
from harness.planning.overrides import typed
from harness.planning.sweep import Sweep, counting_sha256
from harness.planning.yaml_files import read_mapping
from harness.records.record import path_of
from harness.trials.sources import SourceHashes
from harness.trials.spec import TrialSpec
from harness.values.places import CONF_DIR


@dataclass(frozen=True, slots=True)
class Choices:
    """What the person at the machine decides; equal choices plan equal trials.

    datasets: those that were measured, where records are drawn on another machine; None: those that
    lie in data_root.
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
    """One point of a grid: its settings, and where its rounds leave their records.

    all_settings: those of the grid's point, and what the person at the machine decides.
    """

    spec: TrialSpec
    settings: Settings
    all_settings: Settings
    rounds: int

    @property
    def trial_id(self) -> str:
        return self.spec.trial_id

    def with_command(self, conf_dir: Path = CONF_DIR) -> TrialSpec:
        """Return the trial with what is typed for the same."""
        where = [] if conf_dir == CONF_DIR else [f"--config-path={conf_dir}"]
        texts = (typed(key, value) for key, value in self.all_settings.items())
        return replace(self.spec, command=shlex.join(["bench", *where, *texts]))

    def record_paths(self, results_dir: Path) -> tuple[Path, ...]:
        return tuple(path_of(results_dir, self.trial_id, round_) for round_ in range(self.rounds))


def choices_from(
    config: Mapping[str, Any],
    environment: Mapping[str, str],
    datasets: frozenset[str] | None = None,
) -> Choices:
    """Fill in what was not said: the papers' sizes where CUDA is present, else small ones."""
    device = config.get("device") or default_device(nodes_of(config))
    return Choices(
        scale=str(config.get("scale") or ("paper" if device == "cuda" else "smoke")),
        device=str(device),
        threads=int(config.get("threads") or 1),
        data_root=Path(config.get("data_root") or environment.get("BENCH_DATA") or "data"),
        results_dir=Path(config.get("results_dir") or "results"),
        conf_dir=Path(config.get("conf_dir") or CONF_DIR).resolve(),
        datasets=datasets,
    )


def plan_artefact(name: str, choices: Choices, composer: Composer) -> tuple[PlannedTrial, ...]:
    """Resolve one artefact's grid; points that come out equal are one trial.

    Raises ConfigError where the grid, or what it names, is wrong.
    """
    grid = expand(name, choices.scale, choices.conf_dir)
    planned: dict[tuple[str, str], PlannedTrial] = {}
    for other, settings in _shown(grid, choices).items():
        whose = grid if other == name else expand(other, choices.scale, choices.conf_dir)
        for trial in _planned(settings, whose, choices, composer):
            shown = replace(trial, settings={**trial.settings, EXPERIMENT: other})
            planned.setdefault((other, trial.trial_id), trial if other == name else shown)
    return tuple(planned.values())


def _shown(grid: Grid, choices: Choices) -> dict[str, Sequence[Settings]]:
    """Points that a grid shows, by whose they are: its own, or those of other experiments."""
    if grid.trials_of:
        grids = (expand(other, choices.scale, choices.conf_dir) for other in grid.trials_of)
        return {other.name: other.settings for other in grids}
    if not grid.of_claims:
        return {grid.name: grid.settings}
    found: dict[str, Sequence[Settings]] = {}
    for name, claims in _claims_by_experiment(choices, counted=False).items():
        settings = expand(name, choices.scale, choices.conf_dir).settings
        pairs = [pair for c in claims if c.answer for pair in comparisons(c.answer, settings)]
        places = sorted({place for pair in pairs for place in (*pair.of, *pair.over)})
        found[name] = [settings[place] for place in places]
    return found


def _planned(
    settings: Sequence[Settings], grid: Grid, choices: Choices, composer: Composer
) -> Iterator[PlannedTrial]:
    """Resolve points of a grid, with stand-ins for data sets that are not there."""
    systems = read_systems(choices.conf_dir) if grid.screening else ()
    screened = {system.name for system in systems if system.kind == SCREENED}
    extra = {"device": choices.device, "threads": choices.threads}
    places = {"data_root": str(choices.data_root), "results_dir": str(choices.results_dir)}
    named = {str(one["dataset"]) for one in settings}
    available = {dataset: _available(dataset, choices) for dataset in named}
    for one in settings:
        chosen = {**one, "dataset": available[str(one["dataset"])]}
        # What an experiment says itself wins: some compare on the CPU wherever they run.
        whole = places | extra | chosen
        spec = composer.trial(whole)
        if spec.system in screened:
            spec = replace(spec, screening=grid.screening)
        yield PlannedTrial(spec, chosen, whole, grid.rounds)


def plan_counts(name: str, choices: Choices) -> tuple[Sweep, ...]:
    """Batch counts of one artefact, with stand-ins for data sets that are not there."""
    grid = expand(name, choices.scale, choices.conf_dir)
    if grid.of_claims:
        names = _claims_by_experiment(choices, counted=True)
        answering = (sweep for other in names for sweep in plan_counts(other, choices))
        return tuple({sweep.sweep_id: sweep for sweep in answering}.values())
    sweeps = []
    for sweep in grid.sweeps:
        datasets = (_available(dataset, choices) for dataset in sweep.values("dataset"))
        found = {"dataset": tuple(dict.fromkeys(datasets))}
        sweeps.append(replace(sweep, settings={**sweep.settings, **found}))
    return tuple(sweeps)


def _claims_by_experiment(choices: Choices, *, counted: bool) -> dict[str, list[Claim]]:
    """Claims that are answered at this scale; raises ConfigError where one names what is not."""
    claims = read_claims(choices.conf_dir)
    check_claims(claims, choices.conf_dir)
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        answer = claim.answer
        if answer and claim.is_answered_at(choices.scale) and answer.counts_batches == counted:
            found.setdefault(answer.experiment, []).append(claim)
    return found


def sweep_sha256(sweep: Sweep, composer: Composer, hashes: SourceHashes | None = None) -> str:
    """Hash the code that counts: the counter and the models, loaders and policies of a sweep."""
    modules = set()
    for name in sweep.values("model"):
        modules.add(composer.config({"system": "null", "model": name}).model.model)
    for name in sweep.values("dataset"):
        modules.add(composer.config({"system": "null", "dataset": name}).dataset.loader)
    said = {value for values in sweep.settings.values() for value in values}
    return counting_sha256(modules, said, hashes)


def is_here(dataset: str, choices: Choices) -> bool:
    """Whether a data set is generated, or lies in data_root: its folder, or the file it needs."""
    content = _dataset_file(dataset, choices)
    home = home_of(content["loader"]) if "loader" in content else None
    if home is None:
        return True
    folder = choices.data_root / home.folder
    return (folder / content["needs"]).is_file() if content.get("needs") else folder.is_dir()


def stand_ins(name: str, choices: Choices) -> dict[str, str]:
    """Data sets of an artefact's trials that are not there, each with the one taken instead."""
    grid = expand(name, choices.scale, choices.conf_dir)
    shown = _shown(grid, choices).values()
    named = sorted({str(one["dataset"]) for settings in shown for one in settings})
    taken = {dataset: _available(dataset, choices) for dataset in named}
    return {dataset: other for dataset, other in taken.items() if other != dataset}


def _available(dataset: str, choices: Choices) -> str:
    """The data set itself, or the first of the stand-ins, each named by the last, that is there."""
    names = _in_turn(dataset, choices)
    measured = choices.datasets
    if measured is not None:
        return next((name for name in names if name in measured), dataset)
    return next((name for name in names if is_here(name, choices)), dataset)


def _in_turn(dataset: str, choices: Choices) -> list[str]:
    """The data set, its stand-in, what stands in for that, and so on."""
    names: list[str] = []
    name: str | None = dataset
    while name is not None and name not in names:
        names.append(name)
        name = _dataset_file(name, choices).get("stand_in")
    return names


def _dataset_file(dataset: str, choices: Choices) -> dict[str, Any]:
    """Its YAML; nothing for an unknown name, of which whoever composes it says what there is."""
    path = choices.conf_dir / "dataset" / f"{dataset}.yaml"
    return read_mapping(path, "loader") if path.is_file() else {}


def measuring_order(trials: Iterable[PlannedTrial]) -> tuple[PlannedTrial, ...]:
    """Each trial once, with the most rounds asked for; the systems of one point stand together.

    It is screened behind the rounds that any who asks for it wants in full.
    So a slow change of the machine meets all systems of a point alike. In which order they come is
    drawn for each round: harness.planning.ordering.
    """
    asked: dict[str, list[PlannedTrial]] = {}
    for trial in trials:
        asked.setdefault(trial.trial_id, []).append(trial)
    return tuple(sorted(map(_for_all, asked.values()), key=_point_of))


def _for_all(asked: Sequence[PlannedTrial]) -> PlannedTrial:
    """What does for all who ask for a trial."""
    most = max(asked, key=lambda trial: trial.rounds)
    screening = screening_of_all((trial.rounds, trial.spec.screening) for trial in asked)
    return replace(most, spec=replace(most.spec, screening=screening))


def _point_of(trial: PlannedTrial) -> tuple[str, ...]:
    """Everything but the system, as a key to sort by."""
    left_out = ("system", "policy", EXPERIMENT)
    rest = sorted((k, f"{v!s:>12}") for k, v in trial.settings.items() if k not in left_out)
    return tuple(f"{key}={value}" for key, value in rest)
