"""A table as Markdown, LaTeX (booktabs) or HTML."""

from __future__ import annotations

from html import escape

from plots.numbers.table import DAGGER, EN_DASH, TIMES, Table

WORDS = 22  # characters of a cell from which on it is no number but text
LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    DAGGER: r"$^\dagger$",
    TIMES: r"$\times$",
    EN_DASH: "--",
}


def to_markdown(table: Table) -> str:
    """Aligned pipes; the group of a column stands in its header, since Markdown has one line."""
    labels = (f"{c.group}: {c.label}" if c.group else c.label for c in table.columns)
    heads = [table.row_label, *labels]
    body = [[header, *map(str, cells)] for header, cells in table.rows]
    widths = [max(len(row[i]) for row in [heads, *body]) for i in range(len(heads))]
    lines = [
        f"**{table.title}**",
        "",
        table.subtitle,
        "",
        _pipes([h.ljust(w) for h, w in zip(heads, widths, strict=True)]),
        _pipes(["-" * (w - 1) + ":" for w in widths]),
        *(_pipes([t.rjust(w) for t, w in zip(row, widths, strict=True)]) for row in body),
    ]
    for note in table.footnotes:
        lines += ["", note]
    return "\n".join(lines) + "\n"


def _pipes(texts: list[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def to_latex(table: Table) -> str:
    """A table environment; needs the packages booktabs and graphicx."""
    n_columns = len(table.columns)
    group_cells, rules, first = [], [], 2
    for group, width in table.groups:
        group_cells.append(rf"\multicolumn{{{width}}}{{c}}{{{latex(group)}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    labels = " & ".join(latex(column.label) for column in table.columns)
    lines = [
        "% needs \\usepackage{booktabs,graphicx}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex(table.title)}. {latex(table.subtitle)}.}}",
        r"\resizebox{\linewidth}{!}{%",
        rf"\begin{{tabular}}{{r{'r' * n_columns}}}",
        r"\toprule",
        " & " + " & ".join(group_cells) + r" \\",
        " ".join(rules),
        f"{latex(table.row_label)} & {labels}" + r" \\",
        r"\midrule",
        *(
            " & ".join([latex(header), *(latex(str(cell)) for cell in cells)]) + r" \\"
            for header, cells in table.rows
        ),
        r"\bottomrule",
        r"\end{tabular}}",
        *(rf"\par\smallskip\footnotesize {latex(note)}" for note in table.footnotes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def latex(text: str) -> str:
    """Escape what LaTeX would take as a command."""
    return "".join(LATEX_SPECIAL.get(character, character) for character in text)


def to_html(table: Table) -> str:
    """A table element without a style, and what a dash means; papers' columns are "published"."""
    column_kinds = ["published" if column.published else "" for column in table.columns]
    lines = ["<table>", "<thead>", f"<tr><th rowspan='2'>{escape(table.row_label)}</th>"]
    place = 0
    for group, width in table.groups:
        kind = "group published" if table.columns[place].published else "group"
        lines.append(f"<th colspan='{width}' class='{kind}'>{escape(group)}</th>")
        place += width
    lines.append("</tr><tr>")
    for column, kind in zip(table.columns, column_kinds, strict=True):
        lines.append(f"<th{_kind(kind, column.label)}>{escape(column.label)}</th>")
    lines += ["</tr>", "</thead>", "<tbody>"]
    for header, cells in table.rows:
        inner = "".join(
            f"<td{_kind(kind, str(cell))}>{escape(str(cell))}</td>"
            for cell, kind in zip(cells, column_kinds, strict=True)
        )
        lines.append(f"<tr><th>{escape(header)}</th>{inner}</tr>")
    lines += ["</tbody>", "</table>"]
    # The report prints the other notes itself, once for all tables of an artefact.
    lines += [f"<p class='notes'>{escape(note)}</p>" for note in table.dash_note]
    return "\n".join(lines) + "\n"


def _kind(kind: str, text: str) -> str:
    """The class of a cell: what was published; words, which may be broken into lines."""
    names = " ".join(name for name in (kind, "words" if len(text) > WORDS else "") if name)
    return f" class='{names}'" if names else ""
