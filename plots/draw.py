"""Drawing of an experiment by the modules of its table and figures."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from dynbatch.harness.records.files import replace_whole
from dynbatch.plots.captions import build_notes
from dynbatch.plots.experiment import Experiment


def draw_experiment(experiment: Experiment, results_dir: Path) -> None:
    """Write all tables and figures of an experiment, their numbers, and data for the report."""
    write = importlib.import_module("dynbatch.plots.write")  # imports matplotlib, unlike planning
    declaration = experiment.declaration
    stems: list[str] = []
    notes: list[str] = []
    for kind, stem in declaration.figures.items():
        module = importlib.import_module(f"dynbatch.plots.figures.{kind}")
        write.write_figure(*module.draw(experiment), experiment, results_dir / stem)
        stems.append(stem)
    if declaration.table:
        module = importlib.import_module(f"dynbatch.plots.tables.{declaration.table['kind']}")
        for table in module.build(experiment):
            write.write_table(table, experiment, results_dir)
            stems.append(table.stem)
            notes += table.notes
    sheet = write.build_sheet(experiment, stems, notes or build_notes(experiment))
    text = json.dumps(sheet, indent=1, ensure_ascii=False) + "\n"
    replace_whole(results_dir / f"artifacts/{experiment.name}.json", text)
