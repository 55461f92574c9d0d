"""A table as a picture, in the manner of booktabs, for slides and for readers without LaTeX."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.drawing.frame import HEAD_IN, LINE_IN, head_and_foot, wrapped_notes, wrapped_subtitle
from plots.numbers.table import DAGGER, Table
from plots.words.figure_text import FigureText

ROW_IN, CHARACTER_IN, MIN_COLUMN_IN, GROUP_GAP_IN = 0.235, 0.073, 0.62, 0.3
TITLE_CHARACTER_IN = 0.092  # of 11 points, bold
PAPER_COLOR, RULE_COLOR = "#8a5a00", "#444444"


def draw_table(table: Table) -> Figure:
    """Lay the table out in inches: column widths by their text, a gap between groups."""
    widths = column_widths(table)
    rights, right = [], 0.0
    for place, width in enumerate(widths):
        starts_group = place > 0 and (
            place == 1 or table.columns[place - 1].group != table.columns[place - 2].group
        )
        right += width + (GROUP_GAP_IN if starts_group else 0.0)
        rights.append(right)
    figure_width = max(right + 0.3, 6.2, TITLE_CHARACTER_IN * len(table.title) + 0.2)
    foot = LINE_IN * len(wrapped_notes(table.footnotes, figure_width)) + 0.15
    body = ROW_IN * (len(table.rows) + 2.6)
    more_head = LINE_IN * (len(wrapped_subtitle(table.subtitle, figure_width)) - 1)
    height = HEAD_IN + more_head + body + foot
    figure = plt.figure(figsize=(figure_width, height))
    axes = figure.add_axes((0.1 / figure_width, foot / height, right / figure_width, body / height))
    axes.set_axis_off()
    axes.set_xlim(0, right)
    axes.set_ylim(len(table.rows) + 2.6, 0)
    draw_cells(axes, table, widths, rights)
    head_and_foot(figure, FigureText(table.title, table.subtitle, "", "", table.footnotes))
    return figure


def column_widths(table: Table) -> list[float]:
    """Inches per column, the row header first; a group's columns share what its title needs."""
    columns = [[table.row_label, *(header for header, _ in table.rows)]]
    for place, column in enumerate(table.columns):
        columns.append([column.label, *(str(cells[place]) for _, cells in table.rows)])
    widths = [max(MIN_COLUMN_IN, max(map(len, texts)) * CHARACTER_IN + 0.16) for texts in columns]
    first = 1
    for group, n_columns in table.groups:
        own = sum(widths[first : first + n_columns])
        needed = len(group) * CHARACTER_IN + 0.1
        for place in range(first, first + n_columns):
            widths[place] *= max(1.0, needed / own)
        first += n_columns
    return widths


def draw_cells(axes: Axes, table: Table, widths: list[float], rights: list[float]) -> None:
    """Group titles, labels, rules and numbers, all right-aligned."""
    for y, line_width in ((0.1, 1.3), (2.3, 0.8), (len(table.rows) + 2.55, 1.3)):
        draw_rule(axes, 0, rights[-1], y, line_width)
    first = 1
    for group, n_columns in table.groups:
        left, right = rights[first] - widths[first], rights[first + n_columns - 1]
        color = PAPER_COLOR if table.columns[first - 1].published else "#000000"
        axes.text((left + right) / 2, 0.65, group, ha="center", va="center", color=color)
        draw_rule(axes, left + 0.06, right, 1.2, 0.5)
        first += n_columns
    axes.text(rights[0], 1.75, table.row_label, ha="right", va="center", weight="bold")
    for place, column in enumerate(table.columns):
        color = PAPER_COLOR if column.published else "#000000"
        where = (rights[place + 1], 1.75)
        axes.text(*where, column.label, ha="right", va="center", weight="bold", color=color)
        for row, (_, cells) in enumerate(table.rows):
            y, cell = row + 2.85, cells[place]
            axes.text(rights[place + 1], y, cell.text, ha="right", va="center", color=color)
            if cell.warned:  # behind the number, so that digits stay aligned
                axes.text(rights[place + 1], y, DAGGER, ha="left", va="center", color=color)
    for row, (header, _) in enumerate(table.rows):
        axes.text(rights[0], row + 2.85, header, ha="right", va="center")


def draw_rule(axes: Axes, left: float, right: float, y: float, line_width: float) -> None:
    """A horizontal line."""
    axes.plot([left, right], [y, y], linewidth=line_width, color=RULE_COLOR, clip_on=False)
