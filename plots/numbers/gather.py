"""From the plan and the records on disk to artefacts that can be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.contracts.home import home_of
from harness.planning.artefacts import Choices, PlannedTrial
from harness.planning.claims import read_claims
from harness.planning.grid import EXPERIMENT, expand
from harness.planning.kinds import read_systems
from harness.planning.sweep import Sweep
from harness.planning.yaml_files import read_mapping
from harness.records.beside import rounds_seen_together
from plots.numbers.artefact import Artefact
from plots.numbers.comparable import check_one_table
from plots.numbers.points import Point, point_of
from plots.numbers.presentation import read_presentation
from plots.numbers.sources import ResultsFolder, Source


def gather(
    name: str,
    choices: Choices,
    trials: tuple[PlannedTrial, ...],
    sweeps: tuple[Sweep, ...] = (),
    source: Source | None = None,
) -> Artefact:
    """Read the records of an artefact's trials, and its batch counts.

    source: what they are taken from; None: the folder of results.

    Raises RecordError for a damaged record, and where two records may not share a table.
    """
    source = source or ResultsFolder(choices.results_dir)
    found = rounds_seen_together(source.rounds(trials))
    points = tuple(
        point_of(trial.settings, rounds) for trial, rounds in zip(trials, found, strict=True)
    )
    for group in _tables_of(points):
        check_one_table(record for one in group for record in one.records if record is not None)
    of_claims = expand(name, choices.scale, choices.conf_dir).of_claims
    return Artefact(
        presentation=read_presentation(name, choices.conf_dir),
        scale=choices.scale,
        points=points,
        labels=read_labels(choices.conf_dir),
        sweeps=sweeps,
        counts=tuple(row for sweep in sweeps for row in source.counts(sweep)),
        data_root=choices.data_root,
        stand_ins=read_stand_ins(choices.conf_dir),
        variant_of=read_variants(choices.conf_dir),
        conf_dir=choices.conf_dir,
        claims=read_claims(choices.conf_dir) if of_claims else (),
    )


def _tables_of(points: Sequence[Point]) -> list[list[Point]]:
    """Points whose numbers meet: all, or of an artefact of claims those of each experiment."""
    groups: dict[object, list[Point]] = {}
    for point in points:
        groups.setdefault(point.settings.get(EXPERIMENT), []).append(point)
    return list(groups.values())


def read_labels(conf_dir: Path) -> dict[str, str]:
    """How each system and model is called in print, from its YAML; ConfigError for none."""
    labels = {system.name: system.label for system in read_systems(conf_dir)}
    for path in sorted((conf_dir / "model").glob("*.yaml")):
        labels[path.stem] = read_mapping(path, "label")["label"]
    return labels


def read_variants(conf_dir: Path) -> dict[str, str]:
    """Systems that are variants, each with the name of the one that it is a variant of."""
    return {s.name: s.variant_of for s in read_systems(conf_dir) if s.variant_of is not None}


def read_stand_ins(conf_dir: Path) -> dict[str, str]:
    """Generated data sets that another one names as its stand-in, with the kind of instances."""
    contents = [read_mapping(path) for path in sorted((conf_dir / "dataset").glob("*.yaml"))]
    named = {content.get("stand_in") for content in contents}
    return {
        content["name"]: content["instance_kind"]
        for content in contents
        if content["name"] in named and home_of(content["loader"]) is None
    }
