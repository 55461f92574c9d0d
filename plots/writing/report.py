"""All artefacts as one self-contained HTML page: pictures inside, nothing fetched."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from plots.numbers.series import GROUP_TITLES

HEADING = "Batching strategies for dynamic neural networks"
TEMPLATE = Path(__file__).parent / "report.html"


def write_report(sheet_paths: Sequence[Path], results_dir: Path, path: Path) -> None:
    """Gather the artefacts' sheets, tables and pictures into one page, claims first."""
    sheets = [json.loads(sheet.read_text(encoding="utf-8")) for sheet in sheet_paths]
    sheets.sort(key=lambda sheet: not sheet["is_first"])
    for sheet in sheets:
        sheet["parts"] = [_part(stem, results_dir) for stem in sheet["stems"]]
    page = _template().render(
        heading=HEADING,
        sheets=sheets,
        scale=", ".join(dict.fromkeys(sheet["scale"] for sheet in sheets)),
        synthetic=any("synthetic" in sheet["title"] for sheet in sheets),
        machine=next((sheet["machine"] for sheet in sheets if sheet["machine"]), {}),
        threads=next((sheet["threads"] for sheet in sheets if sheet["threads"]), None),
        versions={name: v for sheet in sheets for name, v in sheet["versions"].items()},
        counts=_counts,
        pairs=_pairs,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8"))


def _part(stem: str, results_dir: Path) -> dict[str, str | None]:
    """A table as HTML where there is one, else the picture."""
    table, picture = results_dir / f"{stem}.html", results_dir / f"{stem}.png"
    if table.exists():
        heading = GROUP_TITLES.get(stem.rpartition("_")[2], "")
        return {"heading": heading, "table": table.read_text(encoding="utf-8"), "picture": None}
    content = base64.b64encode(picture.read_bytes()).decode("ascii")
    return {"heading": stem, "table": None, "picture": content}


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in numbers.items()) or "none"


def _pairs(versions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
