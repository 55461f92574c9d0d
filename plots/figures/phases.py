"""Where the time of a pass goes, as stacked bars: of a mini-batch, or of one of its instances.

show:
  parts: [construct_ms, schedule_ms, execution_ms]   # quantities of a mini-batch; ..._per_instance
  unit: ms per mini-batch
  rows: model                  # a row of panels for each of its values; or
  sections:                    # a row of panels for some systems each, with an axis of its own
    batched by hand: [dynet_manual_off, dynet_manual]
  published: {table: dynet_fig2, columns: {cpu_ms: CPU}}   # totals by system; or left out
  daggers: true                # daggers warn, here as in tables
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from plots.drawing.frame import head_and_foot
from plots.drawing.phases import BAR_IN, TOGETHER, TOTAL, Bar, draw_bars, legend_of_parts
from plots.drawing.rows import Room, frame, placed
from plots.drawing.saving import save_figure
from plots.numbers.artefact import Artefact
from plots.numbers.points import NOT_PLANNED, PER_INSTANCE, Point, measure_of
from plots.numbers.published_rows import read_published_rows
from plots.numbers.series import GROUP_TITLES, PUBLISHED, Panel
from plots.numbers.table import DAGGER, plain, three_digits
from plots.numbers.tidy import Row, write_rows
from plots.words.figure_text import FigureText
from plots.words.notes import notes_of, subtitle_of, title_of
from plots.words.trial_cells import find, listed, rows_of_trials

LEGEND_IN, LEGEND_COLUMNS, NAMES_IN = 0.78, 4, 1.5
SCHEDULE = "schedule"  # what some systems do in the part behind it


@dataclass(frozen=True, slots=True)
class Section:
    """A row of panels: its words, the settings of its points, and some systems (None: all)."""

    label: str
    settings: Mapping[str, object]
    systems: tuple[str, ...] | None = None


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write figures/<name>.pdf, .png and .csv."""
    (stem,) = artefact.presentation.stems
    save_figure(draw_phases(artefact), results_dir / stem)
    show = artefact.presentation.show
    keys = (show.get("rows", "model"), "system", "batch_size", "hidden_size")
    rows = rows_of_trials(artefact, keys, show["parts"])
    write_rows(results_dir / f"{stem}.csv", [*rows, *_published_rows(artefact)])


def draw_phases(artefact: Artefact) -> Figure:
    """A row of panels per section, a bar per system; a row shares its x axis but with a paper."""
    show, sections = artefact.presentation.show, sections_of(artefact)
    bars = {
        section.label: {group: bars_of(artefact, section, group) for group in groups_of(artefact)}
        for section in sections
    }
    rows = {
        label: [Panel(group, GROUP_TITLES[group], ()) for group in row]
        for label, row in bars.items()
    }
    text = FigureText(title_of(artefact), subtitle_of(artefact), "", "", _notes(artefact))
    panels = [panel for row in bars.values() for panel in row.values()]
    n_bars = max(map(len, panels))
    parts = {name for panel in panels for bar in panel for name in bar.parts}
    more = 0.165 * ((len(parts) - 1) // LEGEND_COLUMNS)
    room = Room(BAR_IN * n_bars + 0.1, LEGEND_IN + more, NAMES_IN, NAMES_IN)
    figure = frame(text, len(rows), len(groups_of(artefact)), room)
    for axes, panel, row, _ in placed(figure, rows):
        found = bars[sections[row].label]
        draw_bars(axes, found[panel.group], _longest(found, panel.group))
        axes.set_visible(bool(found[panel.group]))
        if row == len(rows) - 1 or not bars[sections[row + 1].label][panel.group]:
            axes.set_xlabel(show["unit"])
    legend_of_parts(figure, sorted(parts), LEGEND_COLUMNS)
    head_and_foot(figure, text)
    return figure


def groups_of(artefact: Artefact) -> tuple[str, ...]:
    """Comparisons, and behind them what was published."""
    published = (PUBLISHED,) if "published" in artefact.presentation.show else ()
    return (*artefact.compare, *published)


def sections_of(artefact: Artefact) -> list[Section]:
    """Rows of panels, from top to bottom."""
    show = artefact.presentation.show
    if "sections" in show:
        return [Section(label, {}, tuple(names)) for label, names in show["sections"].items()]
    key = show["rows"]
    return [Section(artefact.label(value), {key: value}) for value in listed(artefact, key)]


def bars_of(artefact: Artefact, section: Section, group: str) -> list[Bar]:
    """The bars of one panel."""
    if group == PUBLISHED:
        return _published_bars(artefact, section)
    systems = [
        name
        for name in artefact.compare[group]
        if section.systems is None or name in section.systems
    ]
    return [_bar(artefact, section, system) for system in systems]


def _bar(artefact: Artefact, section: Section, system: str) -> Bar:
    point = find(artefact, system=system, **section.settings)
    parts = parts_of(point, artefact.presentation.show["parts"]) if point else {}
    if point is None or not parts:
        return Bar(artefact.label(system), {}, NOT_PLANNED if point is None else point.status)
    words = three_digits(sum(parts.values())) + (DAGGER if point.warnings else "")
    return Bar(artefact.label(system), parts, words)


def parts_of(point: Point, quantities: Sequence[str]) -> dict[str, float]:
    """Milliseconds by part, what is not told apart as one; empty where nothing was measured."""
    measured = {_part(name): measure_of(point, name).summary for name in quantities}
    parts: dict[str, float] = {}
    for name, summary in measured.items():
        if summary is not None:
            follows = list(measured)[list(measured).index(name) - 1] == SCHEDULE
            is_both = follows and measured[SCHEDULE] is None
            parts[name + TOGETHER if is_both else name] = summary.median
    return parts


def _part(quantity: str) -> str:
    """construct_ms and construct_ms_per_instance are of the part construct."""
    return quantity.removesuffix(PER_INSTANCE).removesuffix("_ms")


def _notes(artefact: Artefact) -> tuple[str, ...]:
    chosen = artefact.presentation.show.get("published")
    source = (f"Paper: {read_published_rows(chosen['table']).source}.",) if chosen else ()
    return (*notes_of(artefact), *source)


def _longest(bars: Mapping[str, Sequence[Bar]], group: str) -> float:
    """Of one panel of a paper's, else of all of ours in its row."""
    groups = [group] if group == PUBLISHED else [name for name in bars if name != PUBLISHED]
    return max((bar.length for name in groups for bar in bars[name]), default=1.0)


def _published_bars(artefact: Artefact, section: Section) -> list[Bar]:
    chosen = artefact.presentation.show["published"]
    table = read_published_rows(chosen["table"])
    bars = []
    for system in table.rows:
        for column, words in chosen["columns"].items():
            value = table.value(system, column)
            if value is not None and (section.systems is None or system in section.systems):
                label = f"{artefact.label(system)}, {words}"
                bars.append(Bar(label, {TOTAL: value}, plain(value)))
    return bars


def _published_rows(artefact: Artefact) -> list[Row]:
    chosen = artefact.presentation.show.get("published")
    if chosen is None:
        return []
    table = read_published_rows(chosen["table"])
    return [
        {"system": system, "quantity": column, "value": value, "status": table.source}
        for system in table.rows
        for column in table.columns
        if (value := table.value(system, column)) is not None
    ]
