"""Sources of records, and selection of the experiments that can be drawn from given records.

Scale, device, threads and datasets follow from the records, never from the machine that draws.
Records may be of any version of the code: they are matched by trial id first. A record of an older
configuration matches if all settings that both configurations have are equal: modules may have
moved, and options may have been added or removed. A switch of the engine that only the trial
names must have been in effect as the trial wants it. Counts are matched likewise. If several
records match in this way, none is returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from dynbatch.harness.counts.request import PlannedCount, parse_requests
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import RecordError
from dynbatch.harness.planning import artifacts
from dynbatch.harness.planning.artifacts import Choices, PlannedTrial, build_choices
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.grid import NOTHING, SCALES, list_experiment_names, read_experiment
from dynbatch.harness.planning.sweep import Sweep
from dynbatch.harness.records.count_row import AnyCount, CountRow, read_count_rows
from dynbatch.harness.records.record import Record, Trial, read_record
from dynbatch.harness.records.store import RecordSet, read_all_records
from dynbatch.harness.trials.sources import hash_contents
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.values.paths import ROOT
from dynbatch.plots.declaration import read_declaration

# What some tables show besides records: the code of models and systems.
_DRAWING = ("plots", "harness/models", "systems")
_SUFFIXES = (".py", ".yaml", ".html", ".css")
# Settings by which counts are compared.
_COMPARED = (
    *("model", "dataset", "split", "batch_size"),
    *("granularity", "outputs", "offset", "policy"),
)
_MODULES = frozenset({"adapter", "model_module", "loader"})  # locations of code, not the work
SWITCHES = tuple(field.name for field in fields(Switches))
Rounds = tuple[Record | None, ...]  # None: a round without a record


def hash_drawing_code(conf_dir: Path) -> str:
    """Hash the code that draws, and the code and claims that some tables show."""
    folders = (*(ROOT / folder for folder in _DRAWING), conf_dir / "claims")
    files = (path for folder in folders for path in folder.rglob("*") if path.suffix in _SUFFIXES)
    return hash_contents({path.as_posix(): path for path in files})


@dataclass(frozen=True, slots=True)
class ResultsFolder:
    """Source of records in a results directory of the pipeline.

    Its methods raise RecordError for a damaged file.
    """

    results_dir: Path

    def find_rounds(self, trials: Sequence[PlannedTrial]) -> list[Rounds]:
        """Return the records of each trial by round; None for a round without a record."""
        paths = [trial.list_record_paths(self.results_dir) for trial in trials]
        return [tuple(read_record(p) if p.exists() else None for p in rounds) for rounds in paths]

    def find_counts(self, sweep: Sweep) -> Sequence[AnyCount]:
        """Return the counts of a sweep that have a record, in the order of the sweep."""
        path = sweep.build_path(self.results_dir)
        return read_count_rows(path) if path.exists() else ()


class Elsewhere:
    """Source of records from any machine and any version of the code."""

    def __init__(self, held: RecordSet, composer: Composer | None = None) -> None:
        self._answers = Answers(held.records)
        self.find_counts = CountAnswers(held.counts, composer).find_all

    def find_rounds(self, trials: Sequence[PlannedTrial]) -> list[Rounds]:
        """Return the records of each trial, and None for each planned round without a record.

        Rounds after the last one that any trial has are not planned, and those beyond the plan
        count: the number of measured rounds is a property of the records, not of today's plan.
        """
        matches = self._answers.find_rounds([trial.spec for trial in trials])
        held = 1 + max((round_ for rounds in matches for round_ in rounds), default=0)
        return [
            (
                *(rounds[round_] for round_ in sorted(rounds)),
                *[None] * (min(trial.rounds, held) - len(rounds)),
            )
            for trial, rounds in zip(trials, matches, strict=True)
        ]


Source = ResultsFolder | Elsewhere


@dataclass(frozen=True, slots=True)
class ExperimentPlan:
    """Plan of an experiment, with the records that it uses.

    Attributes:
        seen: trial id and round of each used record; count id and 0 of each used count.
        n_missing: number of planned rounds and counts without a record.
        reads_code: whether it measures nothing, so that it can be drawn without a record.
        obstacle: reason why the experiment cannot be drawn on this machine; empty if it can.
    """

    trials: tuple[PlannedTrial, ...]
    sweeps: tuple[Sweep, ...]
    seen: frozenset[tuple[str, int]]
    n_missing: int
    reads_code: bool
    obstacle: str


@dataclass(frozen=True, slots=True)
class Drawable:
    """Experiments with at least one record or that need none, under one set of choices.

    Attributes:
        parts: all experiments that use a record, or that are read from the code.
        drawn: those that can be drawn on this machine.
        seen: records that any experiment uses, as in `ExperimentPlan`.
    """

    records_path: Path
    choices: Choices
    held: RecordSet
    source: Elsewhere
    parts: Mapping[str, ExperimentPlan]
    drawn: Mapping[str, ExperimentPlan]
    seen: frozenset[tuple[str, int]]

    @property
    def lines(self) -> list[str]:
        """Summary of drawn experiments, missing rounds, unused records and obstacles."""
        choices, shown = self.choices, {name for p in self.drawn.values() for name in p.seen}
        records = [
            r.trial for r in self.held.records if (r.trial_id, r.trial.round) not in self.seen
        ]
        unused = Counter(f"of device={trial.device} threads={trial.threads}" for trial in records)
        unused["counts"] += sum((row.count_id, 0) not in self.seen for row in self.held.counts)
        notes = {
            "rounds without a record, shown as not measured": [
                f"{name} ({part.n_missing})" for name, part in self.drawn.items() if part.n_missing
            ],
            "unused records (another scale=, device= or threads= may use them)": [
                f"{n} {text}" for text, n in unused.items() if n
            ],
            "not drawn": [f"{name}: {p.obstacle}" for name, p in self.parts.items() if p.obstacle],
        }
        return [
            f"{self.records_path}: {len(self.drawn)} experiments are drawn from"
            f" {len(shown)} records, with scale={choices.scale} device={choices.device}"
            f" threads={choices.threads}",
            *(f"{note}: {'; '.join(texts)}" for note, texts in notes.items() if texts),
        ]


def select_drawable(
    config: Mapping[str, Any],
    environment: Mapping[str, str],
    names: Collection[str] = (),
    held: RecordSet | None = None,
) -> Drawable:
    """Plan the experiments that can be drawn from the records in `config["records"]`.

    If scale, device or threads are not set, those that use most records are chosen.

    Args:
        config: keys and values as in `snakemake --config`.
        names: the experiments to plan; all if empty.
        held: the records of that path, if they were read before.

    Raises:
        RecordError: without any record, and if no experiment, or not every named one, can be drawn.
    """
    path = Path(config["records"])
    if held is None:
        held = read_all_records([path]) if path.exists() else RecordSet()
    if not held:
        problem = "has no records" if path.exists() else "does not exist"
        raise RecordError(
            f"records={path} {problem}; choose a path that bench-collect --pack wrote"
        )
    trials = [record.trial for record in held.records]
    datasets = frozenset(item.dataset for item in (*trials, *held.counts))
    options: dict[str, Collection[Any]] = {
        "scale": SCALES,
        "device": dict.fromkeys(trial.device for trial in trials) or ["cpu"],  # counts have none
        "threads": dict.fromkeys(trial.threads for trial in trials) or [1],
    }
    options |= {key: [config[key]] for key in options if config.get(key)}
    candidates = [
        build_choices({**config, **dict(zip(options, values, strict=True))}, environment, datasets)
        for values in product(*options.values())
    ]
    composer = Composer(candidates[0].conf_dir)
    source, tried = Elsewhere(held, composer), []
    for choices in candidates:
        parts = {
            name: plan_part(name, choices, composer, source)
            for name in names or list_experiment_names(choices.conf_dir)
            if choices.scale in read_experiment(name, choices.conf_dir)["scales"]
        }
        parts = {name: part for name, part in parts.items() if part.seen or part.reads_code}
        drawn = {name: part for name, part in parts.items() if not part.obstacle}
        seen = frozenset(name for part in parts.values() for name in part.seen)
        tried.append(Drawable(path, choices, held, source, parts, drawn, seen))
        if len(seen) == len(held):
            break
    best = max(tried, key=lambda drawable: len(drawable.seen))
    absent = ", ".join(name for name in names if name not in best.drawn)
    if absent or not (names or any(part.seen for part in best.drawn.values())):
        obstacles = [part.obstacle for part in best.parts.values() if part.obstacle]
        reason = "; ".join(obstacles) or "no records of it (bench-collect lists them)"
        raise RecordError(
            f"cannot draw {absent or 'any experiment'} from records={path}: {reason}; set another"
            " scale=, device= or threads="
        )
    return best


def plan_part(name: str, choices: Choices, composer: Composer, source: Elsewhere) -> ExperimentPlan:
    """Plan an experiment, and find its records."""
    trials = artifacts.plan_artifact(name, choices, composer)
    sweeps = artifacts.plan_counts(name, choices)
    unique = list({trial.trial_id: trial for trial in trials}.values())
    rounds = [record for records in source.find_rounds(unique) for record in records]
    seen = {(record.trial_id, record.trial.round) for record in rounds if record}
    counts = [row for sweep in sweeps for row in source.find_counts(sweep)]
    seen |= {(row.count_id, 0) for row in counts if row}
    n_missing_counts = counts.count(None)
    obstacle = ""
    if read_declaration(name, choices.conf_dir).draws_mini_batch:
        datasets = {dataset for sweep in sweeps for dataset in sweep.get_values("dataset")}
        if absent := sorted(d for d in datasets if not artifacts.is_here(d, choices)):
            obstacle = f"dataset {', '.join(absent)} is not in data_root={choices.data_root}"
        elif n_missing_counts:
            obstacle = f"{n_missing_counts} of its counts have no record"
    n_missing = rounds.count(None) + n_missing_counts
    reads_code = read_experiment(name, choices.conf_dir)["scales"][choices.scale] == NOTHING
    return ExperimentPlan(trials, sweeps, frozenset(seen), n_missing, reads_code, obstacle)


class CountAnswers:
    """Count records for lookup by sweeps; a shared composer caches configurations."""

    def __init__(self, rows: Iterable[AnyCount], composer: Composer | None = None) -> None:
        self._by_name = {row.count_id: row for row in rows}
        self._alike: dict[tuple[Any, ...], list[AnyCount]] = {}
        for row in self._by_name.values():
            following = row.following if isinstance(row, CountRow) else None
            n_following = len(following.n_batches) if following else 0
            key = (*(getattr(row, name) for name in _COMPARED), row.learning, n_following)
            self._alike.setdefault(key, []).append(row)
        self._composer = composer or Composer()
        self._answered: dict[str, list[AnyCount | None]] = {}

    def find_all(self, sweep: Sweep) -> list[AnyCount | None]:
        """Return the counts of a sweep in its order; None for a missing one."""
        if sweep.sweep_id not in self._answered:
            self._answered[sweep.sweep_id] = [
                self._answer_to(PlannedCount(request, policy, source_sha256=""))
                for request in parse_requests(sweep.overrides, self._composer)
                for policy in request.policies
            ]
        return self._answered[sweep.sweep_id]

    def _answer_to(self, planned: PlannedCount) -> AnyCount | None:
        if planned.count_id in self._by_name:
            return self._by_name[planned.count_id]
        options = dict(planned.request.spec.model_options)
        asked = planned.build_request_labels()
        values = (asked[name] for name in (*_COMPARED, "learning"))
        alike = self._alike.get((*values, planned.request.n_following), [])
        fitting = [row for row in alike if (row.model_options or {}) == options]
        return fitting[0] if len(fitting) == 1 else None


class Answers:
    """Records by trial, for lookup by planned trials."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._by_trial: dict[str, dict[int, Record]] = {}
        for record in records:
            self._by_trial.setdefault(record.trial_id, {})[record.trial.round] = record
        self._alike: dict[tuple[Any, ...], list[str]] = {}
        for trial_id, rounds in self._by_trial.items():
            trial = next(iter(rounds.values())).trial
            self._alike.setdefault(_list_labels(trial), []).append(trial_id)

    def find_rounds(self, specs: Sequence[TrialSpec]) -> list[Mapping[int, Record]]:
        """Return the rounds of each trial of one plan; empty if no record matches."""
        by_name = {spec.trial_id for spec in specs} & self._by_trial.keys()
        # A plan may have a trial twice, for two purposes.
        names = {spec.trial_id: self._find_name(spec, by_name) for spec in specs}
        claims = Counter(names.values())
        asked = (names[spec.trial_id] for spec in specs)
        return [self._by_trial[name] if name and claims[name] == 1 else {} for name in asked]

    def _find_name(self, spec: TrialSpec, taken: Collection[str]) -> str | None:
        if spec.trial_id in taken:
            return spec.trial_id
        candidates = (name for name in self._alike.get(_list_labels(spec), ()) if name not in taken)
        fitting = [name for name in candidates if self._fits(name, spec)]
        return fitting[0] if len(fitting) == 1 else None

    def _fits(self, name: str, spec: TrialSpec) -> bool:
        record = next(iter(self._by_trial[name].values()))
        config = record.config
        if not config or not had_switches(spec, record):
            return False
        wanted = {key: value for key, value in spec.identity.items() if key not in _MODULES}
        wanted |= {"order": spec.order, "timing": asdict(spec.timing)}  # a trial id omits defaults
        embedding_size = config.get("embedding_size") or config.get("hidden_size")
        return agree(wanted, {**config, "embedding_size": embedding_size})


def had_switches(spec: TrialSpec, record: Record) -> bool:
    """Return whether the engine ran with the switches that the trial names and the record does not.

    The configuration of an older record omits switches that had their defaults. Its effective
    options have them. Only switches that are on or off are compared: the backend describes the
    others in its own words.
    """
    named = {name: spec.system_options[name] for name in SWITCHES if name in spec.system_options}
    omitted = named.keys() - record.config.get("system_options", {}).keys()
    if not omitted or not record.effective_options:
        return True
    wanted = Switches(**named).resolve_effective(train=spec.mode == "train")
    return all(
        record.effective_options.get(name, text) == text
        for name, text in wanted.format_values().items()
        if name in omitted and isinstance(getattr(wanted, name), bool)
    )


def agree(wanted: Any, recorded: Any) -> bool:
    """Return whether values are equal, mappings in all shared keys."""
    if isinstance(wanted, Mapping) and isinstance(recorded, Mapping):
        shared = wanted.keys() & recorded.keys()
        return all(agree(wanted[key], recorded[key]) for key in shared)
    return bool(wanted == recorded)


def _list_labels(trial: Any) -> tuple[Any, ...]:
    """Return the fields that make up a trial's name; both Trial and TrialSpec have them."""
    return tuple(getattr(trial, name) for name in Trial.model_fields if name != "round")
