"""Data of an experiment: planned trials and batch counts, joined with their records."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from dynbatch.harness.contracts.policy import is_learned
from dynbatch.harness.counts.request import parse_requests
from dynbatch.harness.planning.artifacts import Choices, PlannedTrial
from dynbatch.harness.planning.claims import Claim, read_claims
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.grid import EXPERIMENT, expand
from dynbatch.harness.planning.kinds import SystemFile, read_systems
from dynbatch.harness.planning.requests import DRAW, format_pipeline_command
from dynbatch.harness.planning.sweep import Sweep
from dynbatch.harness.planning.yaml_files import read_choices
from dynbatch.harness.records.cross_check import check_comparable, cross_check_rounds
from dynbatch.harness.records.numbers import NOT_MEASURED
from dynbatch.harness.records.record import Record
from dynbatch.harness.records.tidy import (
    MODEL_OPTION,
    PLAIN,
    RELEASED,
    build_count_rows,
    build_frame_from_rows,
    build_record_row,
)
from dynbatch.harness.values.paths import CONF_DIR
from dynbatch.plots.declaration import Declaration, read_declaration
from dynbatch.plots.drawable import Drawable, ResultsFolder, Rounds, Source

MISSING = {"status": NOT_MEASURED, "trial_id": None, "reason": "", "warnings": "", "weak_build": ""}
MISSING_COUNT = {**MISSING, "kind": "count", "round": 0, "mini_batch": 0, "offset": None}
COUNT_KEYS = ("model", "dataset", "split", "batch_size", "granularity", "policy", "learning.seed")


@dataclass(frozen=True)
class Experiment:
    """Data of one experiment at one scale, in the form that `numbers` reads.

    Attributes:
        rows: a row for each planned round of a trial: its settings, `point` (number of the trial)
            and the columns of its record (dynbatch.harness.records.tidy), or the status "not
            measured". A trial with `is_partial` has no rows for rounds without a record.
        counts: rows of planned batch counts, in planned order, likewise.
        settings: planned settings of each trial, by `point`.
        command: command that draws the experiment.
    """

    declaration: Declaration
    scale: str
    rows: pd.DataFrame
    counts: pd.DataFrame
    settings: tuple[Mapping[str, Any], ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    systems: tuple[SystemFile, ...] = ()
    claims: tuple[Claim, ...] = ()
    data_root: Path = Path("data")
    conf_dir: Path = CONF_DIR
    command: str = ""

    @property
    def name(self) -> str:
        return self.declaration.name

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Kind of each system, such as "framework" (harness/planning/kinds.py)."""
        return {system.name: system.kind for system in self.systems}

    @cached_property
    def compare(self) -> dict[str, tuple[str, ...]]:
        """Systems of each comparison that are planned at this scale, after the base."""
        planned = set(self.rows.system)
        return {
            group: (base, *(system for system in others if system in planned))
            for group, (base, *others) in self.declaration.compare.items()
        }

    @cached_property
    def labels(self) -> dict[str, str]:
        """Printed names of systems and models."""
        models = read_choices("model", self.conf_dir, "label")
        labels = {system.name: system.label for system in self.systems}
        return labels | {name: content["label"] for name, content in models.items()}

    def label(self, name: object) -> str:
        return self.labels.get(str(name), str(name))

    @cached_property
    def measured(self) -> pd.DataFrame:
        """Rows of rounds that have a record, each record once."""
        return self.rows[self.rows.trial_id.notna()].drop_duplicates(["trial_id", "round"])

    @cached_property
    def measurements(self) -> pd.DataFrame:
        """Days of measurement and all versions of each system."""
        rows = []
        for system, records in self.measured.groupby("system"):
            texts = map(json.loads, records.versions.unique())
            versions: dict[str, str] = {}
            for name, version in sorted({pair for text in texts for pair in text.items()}):
                versions[name] = f"{versions[name]}/{version}" if name in versions else version
            days = dict.fromkeys((records.day.min(), records.day.max()))
            summary = "; ".join(map(" ".join, versions.items()))
            rows.append({"system": system, "measured_on": " to ".join(days), "versions": summary})
        return pd.DataFrame(rows)


def load_experiment(
    name: str,
    choices: Choices,
    trials: Sequence[PlannedTrial],
    sweeps: Sequence[Sweep] = (),
    source: Source | None = None,
    command: str = "",
) -> Experiment:
    """Join an experiment's plan with its records and counts."""
    source = source or ResultsFolder(choices.results_dir)
    rounds = cross_check_rounds(source.find_rounds(trials))
    groups: defaultdict[object, list[Record]] = defaultdict(list)
    for trial, records in zip(trials, rounds, strict=True):
        groups[trial.settings.get(EXPERIMENT)] += filter(None, records)
    for group in groups.values():
        check_comparable(group)
    conf_dir = choices.conf_dir
    return Experiment(
        declaration=read_declaration(name, conf_dir),
        scale=choices.scale,
        rows=join_plan(trials, rounds),
        counts=join_counts(sweeps, source, conf_dir),
        settings=tuple(trial.settings for trial in trials),
        sweeps=tuple(sweeps),
        systems=read_systems(conf_dir),
        claims=read_claims(conf_dir) if expand(name, choices.scale, conf_dir).of_claims else (),
        data_root=choices.data_root,
        conf_dir=conf_dir,
        command=command,
    )


def load_held(name: str, held: Drawable) -> Experiment:
    part = held.drawn[name]
    command = format_pipeline_command(f"{DRAW}{name}", {"records": held.records_path})
    return load_experiment(name, held.choices, part.trials, part.sweeps, held.source, command)


def join_plan(trials: Sequence[PlannedTrial], rounds: Iterable[Rounds]) -> pd.DataFrame:
    """Build a row for each planned round; planned settings override recorded ones."""
    keys = {key for trial in trials for key in trial.settings}
    rows: list[dict[str, Any]] = []
    for point, (trial, records) in enumerate(zip(trials, rounds, strict=True)):
        built = [
            {"kind": "trial", **MISSING, "round": n} if record is None else build_record_row(record)
            for n, record in enumerate(records)
            if record is not None or not any(records)
        ]
        # Keys that only other trials plan: None for options, otherwise the recorded value.
        recorded = next((row for row in built if row["trial_id"]), {})
        planned = {key.lstrip("+"): None if "." in key else recorded.get(key) for key in keys}
        planned |= {key.lstrip("+"): value for key, value in trial.settings.items()}
        planned |= {"point": point, "is_partial": len(built) < len(records)}
        rows += [{**row, **planned} for row in built]
    return build_frame_from_rows(rows)


def join_counts(sweeps: Iterable[Sweep], source: Source, conf_dir: Path) -> pd.DataFrame:
    """Build rows of planned counts, each count once, also those without a record.

    A learning seed that was not counted is dropped if another seed was.
    """
    planned, composer = [], Composer(conf_dir)
    for sweep in sweeps:
        built = [build_count_rows(count) for count in source.find_counts(sweep) if count]
        counts = {tuple(rows[0][key] for key in COUNT_KEYS): rows for rows in built}
        for options, key in _plan_counts(sweep, composer):
            planned.append((options, key, counts.get(key)))
    counted = {(options, key[:-1]) for options, key, rows in planned if rows}
    unique: dict[object, list[dict[str, Any]]] = {}
    for options, key, rows in planned:
        if rows:
            unique.setdefault(rows[0]["trial_id"], [{**row, **dict(options)} for row in rows])
        elif (options, key[:-1]) not in counted:
            missing = MISSING_COUNT | dict(zip(COUNT_KEYS, key, strict=True)) | dict(options)
            unique[options, key] = [{**missing, "graph": graph} for graph in (PLAIN, RELEASED)]
    return build_frame_from_rows([row for rows in unique.values() for row in rows])


def _plan_counts(sweep: Sweep, composer: Composer) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return the model's options as columns and the values of COUNT_KEYS for each count."""
    counts = []
    first: dict[tuple[Any, ...], int] = {}  # of all seeds of a policy, which follow each other
    for request in parse_requests(sweep.overrides, composer):
        spec = request.spec
        options = tuple((f"{MODEL_OPTION}{key}", v) for key, v in spec.model_options.items())
        point = (spec.model, spec.dataset, spec.split, spec.batch_size, request.granularity)
        for policy in request.policies:
            first.setdefault((*point, policy), len(first))
            seed = spec.learning.seed if is_learned(policy) else None
            counts.append((options, (*point, policy, seed)))
    return sorted(counts, key=lambda count: first[count[1][:-1]])
