"""The answer in one table: at every workload of the headlines the engine, and its best peer.

A row is a group of columns of a headline's table (plots.tables.peers), which has all systems. The
CSV ranks all of them, which the report shows at its top.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness.planning.grid import EXPERIMENT
from plots.numbers.artefact import Artefact
from plots.numbers.best_peer import BestPeer, peer_names
from plots.numbers.fastest import TIME, TIMED_INSTANCES, fastest_first
from plots.numbers.points import Measured, Point, measure_of, speedup_of
from plots.numbers.presentation import read_presentation
from plots.numbers.series import SYSTEMS
from plots.numbers.table import EN_DASH, TIMES, Cell, Column, Table
from plots.numbers.tidy import Row
from plots.tables.peers import THROUGHPUT, Settings, best_peers_of, peers_left_out, settings_of
from plots.words.notes import notes_of, subtitle_of, title_of
from plots.words.trial_cells import (
    find,
    measured_cell,
    numbers_of,
    points_with,
    ratio_cell,
)
from plots.writing.table import write_table_and_rows

SIZES = {"hidden_size": "hidden", "batch_size": "batch"}


@dataclass(frozen=True, slots=True)
class Answer:
    """One workload: what the engine does in a second, and its best peer, where one was measured.

    task: what the headline is about; workload: with what is said of its settings.
    """

    headline: Artefact
    task: str
    workload: str
    settings: Settings
    engine: Measured
    best: BestPeer | None


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    write_table_and_rows(table_of(artefact), rows_of(artefact), results_dir / stem)


def answers_of(artefact: Artefact) -> Iterator[Answer]:
    """Every workload, headline after headline."""
    for name in dict.fromkeys(str(point.settings[EXPERIMENT]) for point in artefact.points):
        points = tuple(points_with(artefact, {EXPERIMENT: name}))
        presentation = read_presentation(name, artefact.conf_dir)
        headline = replace(artefact, presentation=presentation, points=points)
        engine, *_ = presentation.compare[SYSTEMS]
        best = best_peers_of(headline)
        task = presentation.title.partition(":")[0]
        for words, settings in settings_of(headline).items():
            measured = measure_of(find(headline, system=engine, **settings), THROUGHPUT)
            yield Answer(headline, task, f"{task}: {words}", settings, measured, best[words])


def table_of(artefact: Artefact) -> Table:
    """Rows are workloads."""
    return Table(
        title=title_of(artefact),
        subtitle=subtitle_of(artefact),
        row_label="workload",
        columns=(
            *(Column("size", words) for words in SIZES.values()),
            Column("engine", "instances/s"),
            Column("best peer", "name"),
            Column("best peer", "of"),
            Column("best peer", "instances/s"),
            Column("engine over it", TIMES),
        ),
        rows=tuple((one.workload, _cells(one)) for one in answers_of(artefact)),
        notes=(*_left_out(artefact), *notes_of(artefact, "")),
    )


def _left_out(artefact: Artefact) -> tuple[str, ...]:
    """Which peers a workload's best is not the best of, though they run its model."""
    missing: dict[str, list[str]] = {}
    for one in answers_of(artefact):
        for label in peers_left_out(one.headline):
            tasks = missing.setdefault(label, [])
            tasks += [one.task] if one.task not in tasks else []
    words = "; ".join(f"{label} ({', '.join(tasks)})" for label, tasks in missing.items())
    return (
        (f"Of: peers that have a number. Without a trial at this scale: {words}.",) if words else ()
    )


def _cells(answer: Answer) -> tuple[Cell, ...]:
    sizes = (Cell(size_of(answer, key)) for key in SIZES)
    engine, best = measured_cell(answer.engine), answer.best
    if best is None:
        has_engine = answer.engine.summary is not None
        words = "no peer measured" if has_engine else "not measured"
        return (*sizes, engine if has_engine else Cell(EN_DASH), Cell(words), *[Cell(EN_DASH)] * 3)
    return (
        *sizes,
        engine,
        Cell(answer.headline.label(best.system)),
        Cell(str(best.n_peers)),
        measured_cell(speed_of_best(answer)),
        ratio_cell(best.ratio),
    )


def speed_of_best(answer: Answer) -> Measured:
    """What the best peer does in a second."""
    assert answer.best is not None
    peer = find(answer.headline, system=answer.best.system, **answer.settings)
    return measure_of(peer, THROUGHPUT)


def size_of(answer: Answer, key: str) -> str:
    """The sizes at which a workload was measured."""
    points = points_with(answer.headline, answer.settings)
    sizes = sorted({int(point.settings[key]) for point in points if key in point.settings})
    return ", ".join(map(str, sizes)) or EN_DASH


def rows_of(artefact: Artefact) -> list[Row]:
    """A row for each workload and system, the fastest first: its speed, the engine's over it."""
    return [
        {
            "experiment": one.headline.name,
            "workload": one.workload,
            **{key: size_of(one, key) for key in SIZES},
            "unit": one.headline.presentation.show["unit"],
            "system": system,
            "label": one.headline.label(system),
            "is_engine": system == one.headline.compare[SYSTEMS][0],
            "n_peers": 0 if one.best is None else one.best.n_peers,
            "is_best_peer": one.best is not None and one.best.system == system,
            **numbers_of(measure_of(point, THROUGHPUT)),
            **{f"engine_over_it_{key}": value for key, value in _gain(one, point).items()},
        }
        for one in answers_of(artefact)
        for system, point in ranking_of(one)
    ]


def ranking_of(answer: Answer) -> list[tuple[str, Point]]:
    """The engine and its peers at a workload, the fastest first, those without a number last."""
    headline = answer.headline
    shown = {headline.compare[SYSTEMS][0], *peer_names(headline.conf_dir)}
    points = [p for p in points_with(headline, answer.settings) if p.settings["system"] in shown]
    ranked = [point for point, _ in fastest_first(points, shown)]
    failed = [point for point in points if point not in ranked]
    return [(str(point.settings["system"]), point) for point in (*ranked, *failed)]


def _gain(answer: Answer, point: Point) -> Row:
    """What the engine gains over a system: number and ends."""
    engine = find(answer.headline, system=answer.headline.compare[SYSTEMS][0], **answer.settings)
    told = numbers_of(speedup_of(point, engine, TIME, TIMED_INSTANCES))
    return {key: told[key] for key in ("value", "low", "high", "n_rounds", "warnings")}
