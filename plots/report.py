"""HTML report: all experiments of one or several machines on one self-contained page."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Collection, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from PIL import Image

from dynbatch.harness.errors import OutputError
from dynbatch.harness.records.files import replace_whole
from dynbatch.plots.declaration import GROUP_TITLES

Sheet = dict[str, Any]  # artifacts/NAME.json, see plots/write.py
Results = dict[str, Any]
PAPERS = ("Cavs", "DyNet", "ED-Batch", "ACRoBat")
ANSWERS = "answers"
OPENING = (ANSWERS, "claims")  # experiments at the top of the page
N_COLORS = 256  # fewer would change fills visibly
WIDTH = 1600  # of pictures, in pixels: twice the displayed width


def write_report(
    path: Path, results_dirs: Sequence[Path], names: Collection[str] | None = None
) -> None:
    """Write one page about all experiments that were drawn into the given directories.

    Args:
        results_dirs: one directory, or one for each kind of machine, which it is named after; the
            page then has a column for each.
        names: the experiments to show; None: all that were drawn.
    """
    kinds = [read_results(folder, path.parent, names) for folder in results_dirs]
    sections: dict[str, list[tuple[Results, Sheet]]] = {}
    for kind in kinds:
        for sheet in kind["sheets"]:
            sections.setdefault(sheet["name"], []).append((kind, sheet))
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    pages = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    first = [members[0][1] for members in sections.values()]
    page = pages.get_template("report.html").render(kinds=kinds, sections=sections, sheets=first)
    replace_whole(path, page)


def read_results(folder: Path, root: Path, names: Collection[str] | None) -> Results:
    """Read the experiments that were drawn into a directory.

    Args:
        root: directory that links to the files are relative to.
    """
    paths = sorted((folder / "artifacts").glob("*.json"))
    paths = [path for path in paths if names is None or path.stem in names]
    if not paths:
        raise OutputError(f"nothing was drawn into {folder}; draw experiments first")
    sheets = []
    for path in sorted(paths, key=lambda path: path.stem not in OPENING):
        sheet = json.loads(path.read_text(encoding="utf-8"))
        sheet["parts"] = [read_part(folder / stem, root) for stem in sheet["stems"]]
        named = [paper for paper in PAPERS if paper in sheet["paper"].partition("(")[0]]
        sheet["papers"] = named or ["This project"]
        is_answer = sheet["name"] == ANSWERS
        sheet["answer"] = summarize_answers(folder / f"tables/{ANSWERS}.csv") if is_answer else ""
        sheets.append(sheet)
    return {
        "name": folder.resolve().name,
        "sheets": sheets,
        "machine": max((sheet["machine"] for sheet in sheets), key=len),
        "versions": {system: v for sheet in sheets for system, v in sheet["versions"].items()},
    }


def read_part(stem: Path, root: Path) -> dict[str, Any]:
    """Read a table as HTML or a figure as PNG, with a link `csv` to its numbers."""
    csv, table = os.path.relpath(f"{stem}.csv", root), Path(f"{stem}.html")
    if table.is_file():
        heading = GROUP_TITLES.get(stem.name.rpartition("_")[2], "")
        return {"csv": csv, "heading": heading, "table": table.read_text(encoding="utf-8")}
    content, width, height = shrink_picture(Path(f"{stem}.png"), WIDTH)
    picture = base64.b64encode(content).decode("ascii")
    return {"csv": csv, "picture": picture, "width": width // 2, "height": height // 2}


def shrink_picture(path: Path, width: int) -> tuple[bytes, int, int]:
    """Return a picture as PNG, at most `width` pixels wide, with its width and height."""
    content = BytesIO()
    with Image.open(path) as image:
        picture = image.convert("RGB")
    picture.thumbnail((width, picture.height), Image.Resampling.LANCZOS, reducing_gap=None)
    # A palette from the picture's own colors saves two thirds of the bytes and keeps grays gray.
    picture = picture.quantize(N_COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    picture.save(content, "PNG")
    return content.getvalue(), picture.width, picture.height


def summarize_answers(path: Path) -> str:
    """Summarize the CSV of `answers`: workloads on which the engine wins or loses, and gaps."""
    rows = pd.read_csv(path)
    best = rows[rows.is_fastest_baseline & rows.speedup.notna()]
    low, high = best.speedup_low.fillna(best.speedup), best.speedup_high.fillna(best.speedup)
    n_faster, n_slower = int((low > 1).sum()), int((high < 1).sum())
    sentences = []
    if len(best):
        sentences.append(
            f"The engine is faster than the fastest of all baselines, C++ by hand included, on"
            f" {n_faster} of {len(best)} workloads"
            f" and slower on {n_slower}; on {len(best) - n_faster - n_slower} the interval of the"
            " speedup includes 1."
        )
    if missing := [name for name in rows.workload.unique() if name not in set(best.workload)]:
        sentences.append(f"Not measured: {'; '.join(missing)}.")
    return " ".join(sentences)
