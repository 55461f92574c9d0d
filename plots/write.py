"""Files of an experiment: tables as CSV, Markdown, LaTeX and HTML; figures as CSV, PNG and PDF."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dynbatch.harness.records.files import replace_whole
from dynbatch.harness.records.numbers import NOT_MEASURED
from dynbatch.plots.captions import build_caption, build_title
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.figures import mpl
from dynbatch.plots.tables.cells import PAPER, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Without dates and program versions, equal data gives equal bytes.
METADATA: dict[str, dict[str, str | None]] = {
    ".pdf": {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None},
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
}
LABEL_LETTERS = 18  # per line of a column label in LaTeX
LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}",
    "\N{DAGGER}": r"$^\dagger$", "\N{MULTIPLICATION SIGN}": r"$\times$", "\N{EN DASH}": "--",
    "\N{LESS-THAN OR EQUAL TO}": r"$\leq$",
})  # fmt: skip


def write_table(table: Table, experiment: Experiment, results_dir: Path) -> None:
    """Write STEM.csv, .md, .tex and .html."""
    path = results_dir / table.stem
    write_numbers(table.numbers, experiment, path.with_suffix(".csv"))
    replace_whole(path.with_suffix(".md"), to_markdown(table))
    replace_whole(path.with_suffix(".tex"), to_latex(table))
    replace_whole(path.with_suffix(".html"), to_html(table))


def write_figure(figure: Figure, numbers: pd.DataFrame, experiment: Experiment, path: Path) -> None:
    """Write PATH.csv, .png and .pdf."""
    write_numbers(numbers, experiment, path.with_suffix(".csv"))
    save_figure(figure, path.with_suffix(".png"), path.with_suffix(".pdf"))


def save_figure(figure: Figure, *paths: Path) -> None:
    """Write a figure as .png, .pdf or .svg."""
    dpi = mpl.rcParams["savefig.dpi"]  # text widths depend on it
    figure.set_dpi(figure.dpi if dpi == "figure" else dpi)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # done: all files have the same layout
    # Measured once: savefig would draw the figure again for each file.
    box = figure.get_tightbbox().padded(mpl.rcParams["savefig.pad_inches"])
    for path in paths:
        content, kind = BytesIO(), path.suffix
        with mpl.rc_context({"svg.hashsalt": "bench"}):
            figure.savefig(content, format=kind[1:], metadata=METADATA[kind], bbox_inches=box)
        replace_whole(path, content.getvalue())


def write_numbers(numbers: pd.DataFrame, experiment: Experiment, path: Path) -> None:
    """Write all digits of numbers, with the days and versions of their measurement."""
    facts = experiment.measurements
    if "system" in numbers and len(facts):
        names = numbers.astype({"system": object})  # a column of floats if no row has a system
        numbers = names.merge(facts, on="system", how="left", validate="m:1")
    replace_whole(path, numbers.to_csv(index=False, lineterminator="\n"))


def flatten(cells: pd.DataFrame) -> pd.DataFrame:
    """Return cells as text, with the heads of rows as the first columns."""
    named = cells.set_axis(pd.Index(list(cells.columns)), axis=1)  # pairs become two levels
    named = named.rename_axis([name or "" for name in cells.index.names])
    return named.reset_index(col_level=-1).astype(str)


def to_markdown(table: Table) -> str:
    """Return a table as Markdown pipe tables.

    Markdown has one header line, so labels start with the name of their group.
    """
    blocks = [f"**{table.title}**"]
    for group, cells in table.split_parts():
        blocks += [f"*{group}*"] if group else []
        blocks.append("\n".join(to_pipes(cells)))
    return "\n\n".join([*blocks, *table.notes]) + "\n"


def to_pipes(cells: pd.DataFrame) -> list[str]:
    """Return the lines of a Markdown table; numbers are aligned to the right."""
    columns = []
    for position, (key, texts) in enumerate(flatten(cells).items()):
        label = ": ".join(filter(None, key)) if isinstance(key, tuple) else str(key)
        head, *others = (text.replace("|", r"\|") for text in (label, *texts))
        width = max(3, *map(len, (head, *others)))
        is_head = position < cells.index.nlevels
        align, rule = (str.ljust, "-" * width) if is_head else (str.rjust, "-" * (width - 1) + ":")
        columns.append([align(text, width) for text in (head, rule, *others)])
    return [f"| {' | '.join(line)} |" for line in zip(*columns, strict=True)]


def to_latex(table: Table) -> str:
    """Return a LaTeX table environment for each part; these need the package booktabs."""
    lines = []
    for group, cells in table.split_parts():
        title = f"{table.title}: {group}" if group else table.title
        style = flatten(cells).style.hide(axis="index").format(_escape_latex)
        style = style.format_index(_wrap_latex, axis="columns")
        columns = "l" * cells.index.nlevels + "r" * cells.shape[1]
        lines += [
            "\\begin{table}\n\\centering\n\\footnotesize",
            f"\\caption{{{_escape_latex(title)}}}",
            style.to_latex(column_format=columns, hrules=True, multicol_align="c").rstrip(),
            "\\end{table}",
        ]
    lines[-1:-1] = [f"\\par\\raggedright {_escape_latex(note)}" for note in table.notes]
    return "\n".join(lines) + "\n"


def _escape_latex(text: object) -> str:
    return str(text).translate(LATEX)


def _wrap_latex(label: object) -> str:
    """Break a long label of a column into lines."""
    lines = textwrap.wrap(str(label), LABEL_LETTERS, break_on_hyphens=False)
    stack = " \\\\ ".join(map(_escape_latex, lines))
    return f"\\shortstack[r]{{{stack}}}" if len(lines) > 1 else stack


def to_html(table: Table) -> str:
    """Return table elements without style; the report styles them and prints the notes.

    Published numbers have the class "published"; tables of text also have the class "text".
    """
    lines, classes = [], "numbers text" if table.is_text else "numbers"
    for group, cells in table.split_parts():
        lines += [f"<h4>{escape(group)}</h4>"] if group else []
        marked = flatten(cells).apply(_mark_published).rename(columns=escape)
        with pd.option_context("display.max_colwidth", None):
            lines.append(marked.to_html(index=False, escape=False, border=0, classes=classes))
    return "\n".join(lines) + "\n"


def _mark_published(texts: pd.Series[str]) -> pd.Series[str]:
    """Escape a column, and mark published numbers, which its label or texts identify."""
    shown = texts.map(escape)
    is_published = texts.str.startswith(PAPER) | (PAPER in str(texts.name))
    return shown.mask(is_published, '<span class="published">' + shown + "</span>")


def build_sheet(
    experiment: Experiment, stems: Sequence[str], notes: Sequence[str]
) -> dict[str, Any]:
    """Collect the report's data about an experiment."""
    measured, counts = experiment.measured, experiment.counts
    recorded = counts[counts.status != NOT_MEASURED]
    counted = recorded.drop_duplicates("trial_id", keep="last")
    statuses = Counter([*measured.status, *counted.status])
    models = {*experiment.rows.model.dropna(), *counts.model.dropna()}
    ok = measured[measured.status == "ok"]
    facts = [json.loads(str(text)) for text in ok.group_facts.unique()]
    facts += [{"cpu": row.cpu} for row in counted.itertuples()]
    return {
        "name": experiment.name,
        "stems": list(stems),
        "title": build_title(experiment),
        "paper": experiment.declaration.paper,
        "caption": build_caption(experiment).replace("error bars", "intervals"),
        "notes": list(dict.fromkeys(notes)),
        "scale": experiment.scale,
        "models": sorted(map(experiment.label, models)),
        "statuses": dict(sorted(statuses.items())),
        "machine": max(facts, key=len, default={}),
        "versions": {
            experiment.label(row.system): row.versions
            for row in experiment.measurements.itertuples()
        },
        "command": experiment.command,
    }
