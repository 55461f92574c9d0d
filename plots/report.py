"""HTML report: all experiments on one self-contained page."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Collection
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
PAPERS = ("Cavs", "DyNet", "ED-Batch", "ACRoBat")
ANSWERS = "answers"
OPENING = (ANSWERS, "claims")  # experiments at the top of the page
N_COLORS = 256  # fewer would change fills visibly
WIDTH = 1600  # of pictures, in pixels: twice the displayed width


def write_report(path: Path, results_dir: Path, names: Collection[str]) -> None:
    """Write one page about the named experiments, which were drawn into a directory."""
    sheets = read_sheets(results_dir, path.parent, names)
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    pages = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    page = pages.get_template("report.html").render(
        sheets=sheets,
        machine=max((sheet["machine"] for sheet in sheets), key=len),
        versions={system: v for sheet in sheets for system, v in sheet["versions"].items()},
    )
    replace_whole(path, page)


def read_sheets(folder: Path, root: Path, names: Collection[str]) -> list[Sheet]:
    """Read the named experiments, which were drawn into a directory.

    Args:
        root: directory that links to the files are relative to.
    """
    paths = [path for path in (folder / "artifacts").glob("*.json") if path.stem in names]
    if not paths:
        raise OutputError(f"nothing was drawn into {folder}; draw experiments first")
    sheets = []
    for path in sorted(paths, key=lambda path: (path.stem not in OPENING, path)):
        sheet = json.loads(path.read_text(encoding="utf-8"))
        sheet["parts"] = [read_part(folder / stem, root) for stem in sheet["stems"]]
        named = [paper for paper in PAPERS if paper in sheet["paper"].partition("(")[0]]
        sheet["papers"] = named or ["This project"]
        is_answer = sheet["name"] == ANSWERS
        sheet["answer"] = summarize_answers(folder / f"tables/{ANSWERS}.csv") if is_answer else ""
        sheets.append(sheet)
    return sheets


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
    # A palette of the picture's own colors saves two thirds of the bytes; k-means keeps grays gray.
    palette = Image.Quantize.MAXCOVERAGE
    picture = picture.quantize(N_COLORS, palette, kmeans=1, dither=Image.Dither.NONE)
    picture.save(content, "PNG", optimize=True)
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
