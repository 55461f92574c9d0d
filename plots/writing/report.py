"""All artefacts as one self-contained HTML page: answers first, pictures inside."""

from __future__ import annotations

import base64
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from harness.records.whole_files import replace_whole
from plots.numbers.series import GROUP_TITLES
from plots.writing.report_answers import Workload, read_answers
from plots.writing.small_picture import size_of, small_picture

Sheet = Mapping[str, Any]
HEADING = "Batching strategies for dynamic neural networks"
TEMPLATE = Path(__file__).parent / "report.html"
STYLE = Path(__file__).parent / "report.css"
PAPERS = ("Cavs", "DyNet", "ED-Batch", "ACRoBat")  # what an artefact's paper begins with
OWN = "This project's own"
ANSWERS = "answers"  # the artefact whose numbers the top of the page shows
WIDTH = 1500  # of pictures, in pixels: two for each of the page's


@dataclass(frozen=True, slots=True)
class Shown:
    """What one kind of machine found: its artefacts, and what the page says of it as a whole.

    name: of the kind; empty where there is only one. folder: of its files, as the page links them.
    """

    name: str
    folder: str
    sheets: list[dict[str, Any]]
    results_dir: Path

    @property
    def machine(self) -> dict[str, Any]:
        return next((sheet["machine"] for sheet in self.sheets if sheet["machine"]), {})

    @property
    def threads(self) -> int | None:
        return next((sheet["threads"] for sheet in self.sheets if sheet["threads"]), None)

    @property
    def scale(self) -> str:
        return ", ".join(dict.fromkeys(sheet["scale"] for sheet in self.sheets))

    @property
    def measured(self) -> str:
        return measured_words(self.sheets, self.machine, self.threads, self.scale)

    @property
    def workloads(self) -> tuple[Workload, ...]:
        return read_answers(self.results_dir)

    @property
    def versions(self) -> dict[str, Any]:
        return {name: v for sheet in self.sheets for name, v in sheet["versions"].items()}


def write_report(sheet_paths: Sequence[Path], results_dir: Path, path: Path) -> None:
    """Gather the artefacts' sheets, tables and pictures into one page: answers, then claims."""
    _write([_shown("", sheet_paths, results_dir, "")], path)


def write_report_of_kinds(results_dirs: Sequence[Path], path: Path) -> None:
    """Gather what several kinds of machines found, a column for each in every artefact's section.

    results_dirs: of one kind each, named as it, drawn before; the page links their files relative
    to its own folder.
    """
    kinds = []
    for folder in results_dirs:
        sheets = sorted((folder / "artefacts").glob("*.json"))
        link = f"{os.path.relpath(folder, path.parent)}/"
        kinds.append(_shown(folder.name, sheets, folder, link))
    _write(kinds, path)


def _shown(name: str, sheet_paths: Iterable[Path], results_dir: Path, folder: str) -> Shown:
    sheets = [json.loads(sheet.read_text(encoding="utf-8")) for sheet in sheet_paths]
    sheets.sort(key=lambda sheet: (sheet["name"] != ANSWERS, not sheet["is_first"]))
    for sheet in sheets:
        sheet["parts"] = [_part(sheet, stem, results_dir, folder) for stem in sheet["stems"]]
        sheet["short"] = sheet["name"].replace("_", " ")
    return Shown(name, folder, sheets, results_dir)


def _write(kinds: Sequence[Shown], path: Path) -> None:
    rows: dict[str, list[tuple[Shown, dict[str, Any]]]] = {}
    for kind in kinds:
        for sheet in kind.sheets:
            rows.setdefault(sheet["name"], []).append((kind, sheet))
    first = [members[0][1] for members in rows.values()]
    page = _template().render(
        heading=HEADING,
        style=STYLE.read_text(encoding="utf-8"),
        kinds=kinds,
        rows=rows,
        papers=_by_paper(first),
        models=_by_model(first),
        scale=", ".join(dict.fromkeys(kind.scale for kind in kinds)),
        synthetic=any("synthetic" in sheet["title"] for sheet in first),
        counts=_counts,
        pairs=_pairs,
    )
    replace_whole(path, page)


def measured_words(
    sheets: Sequence[Mapping[str, Any]],
    machine: Mapping[str, Any],
    threads: int | None,
    scale: str,
) -> str:
    """One line: on what, how much, and what came out."""
    gpus = ", ".join(gpu["name"] for gpu in machine.get("gpus") or ()) or "no GPU"
    cpu = machine.get("cpu", "no machine told")
    n_cpus = len(machine.get("usable_cpus") or ())
    statuses: Counter[str] = Counter()
    for sheet in sheets:
        statuses.update(sheet["statuses"])
    failed = {name: n for name, n in statuses.items() if name != "ok"}
    return (
        f"{cpu}, {n_cpus} CPUs, {gpus}; threads of a trial: {threads or 'not told'};"
        f" {len(sheets)} artefacts at {scale} scale; records and counts shown in them:"
        f" {statuses['ok']} ok" + (f", {_counts(failed)}" if failed else "") + "."
    )


def _paper(sheet: Mapping[str, Any]) -> str:
    """The paper that an artefact is of."""
    named = [paper for paper in PAPERS if paper in sheet["paper"].partition("(")[0]]
    is_own = sheet["paper"].startswith("this project") or len(named) != 1
    return OWN if is_own else named[0]


def _by_paper(sheets: Sequence[Sheet]) -> dict[str, list[Sheet]]:
    """Artefacts by the papers that they are of; what is this project's own comes last."""
    found: dict[str, list[Sheet]] = {paper: [] for paper in (*PAPERS, OWN)}
    for sheet in sheets:
        found[_paper(sheet)].append(sheet)
    return {paper: members for paper, members in found.items() if members}


def _by_model(sheets: Sequence[Sheet]) -> dict[str, list[Sheet]]:
    """Artefacts by the models that they show."""
    found: dict[str, list[Sheet]] = {}
    for sheet in sheets:
        for model in sheet["models"]:
            found.setdefault(model, []).append(sheet)
    return dict(sorted(found.items()))


def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8"))


def _part(
    sheet: Mapping[str, Any], stem: str, results_dir: Path, folder: str = ""
) -> dict[str, Any]:
    """A table as HTML where there is one, else the picture; and where all its numbers are."""
    table = results_dir / f"{stem}.html"
    part: dict[str, Any] = {
        "csv": f"{folder}{stem}.csv",
        "marks": _counts_or_nothing(sheet["warnings"]),
    }
    if table.exists():
        heading = GROUP_TITLES.get(stem.rpartition("_")[2], "")
        return {**part, "heading": heading, "table": table.read_text(encoding="utf-8")}
    content = small_picture(results_dir / f"{stem}.png", WIDTH)
    width, height = size_of(content)
    picture = base64.b64encode(content).decode("ascii")
    return {**part, "table": None, "picture": picture, "width": width // 2, "height": height // 2}


def _counts_or_nothing(numbers: Mapping[str, int]) -> str:
    return _counts(numbers) if numbers else ""


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in numbers.items()) or "none"


def _pairs(versions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
