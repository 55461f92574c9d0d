"""What the report needs to know of an artefact, as JSON beside its pictures."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from harness.records.whole_files import replace_whole
from plots.numbers.artefact import Artefact
from plots.words.notes import notes_of, subtitle_of, title_of


def sheet_of(artefact: Artefact, command: str) -> dict[str, Any]:
    """Words, files, machine, versions, statuses and warnings of one artefact."""
    records = artefact.records
    statuses = Counter(one.status for one in (*records, *artefact.counts))
    return {
        "name": artefact.name,
        "title": title_of(artefact),
        "paper": artefact.presentation.paper,
        "subtitle": subtitle_of(artefact),
        "notes": notes_of(artefact),
        "scale": artefact.scale,
        "is_table": artefact.presentation.is_table,
        "is_first": bool(artefact.claims),
        "stems": artefact.presentation.stems,
        "models": models_of(artefact),
        "n_trials": len(artefact.points),
        "n_records": len(records),
        "n_counts": len(artefact.counts),
        "statuses": dict(sorted(statuses.items())),
        "warnings": dict(sorted(Counter(name for r in records for name in r.warnings).items())),
        "machine": records[0].machine if records else {},
        "threads": records[0].trial.threads if records else None,
        "device": records[0].trial.device if records else None,
        "versions": versions_of(artefact),
        "command": command,
    }


def models_of(artefact: Artefact) -> list[str]:
    """Models that it shows, as they are called in print."""
    named = [str(point.settings["model"]) for point in artefact.points if "model" in point.settings]
    named += artefact.listed("model")
    return sorted({artefact.label(name) for name in named})


def versions_of(artefact: Artefact) -> dict[str, dict[str, str]]:
    """Versions by the label of the system that ran with them."""
    versions: dict[str, dict[str, str]] = {}
    for record in artefact.records:
        if record.status == "ok":
            versions.setdefault(artefact.label(record.trial.system), dict(record.versions))
    return versions


def write_sheet(artefact: Artefact, results_dir: Path, command: str) -> None:
    """Write artefacts/<name>.json."""
    path = results_dir / "artefacts" / f"{artefact.name}.json"
    text = json.dumps(sheet_of(artefact, command), indent=1, ensure_ascii=False) + "\n"
    replace_whole(path, text)
