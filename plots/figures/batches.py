"""One mini-batch as a graph, a panel per policy, every vertex with its batch.

show: {graph: plain}   # the sweep has one model, data set and batch size
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from plots.drawing.graph import draw_schedules
from plots.drawing.saving import FIXED_METADATA
from plots.drawing.words import draw_words
from plots.numbers.artefact import Artefact
from plots.numbers.counted_graph import CountedGraph, counted_graph, failures
from plots.numbers.tidy import Row, write_rows
from plots.words.notes import title_of


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write figures/<name>.pdf, .png and .csv, a row per policy and vertex."""
    (stem,) = artefact.presentation.stems
    shown, failed = counted_graph(artefact), failures(artefact)
    reasons = {policy: f"{row.status}: {row.reason}" for policy, row in failed.items()}
    for suffix in FIXED_METADATA:
        path = results_dir / f"{stem}{suffix}"
        if shown is None:
            draw_words(reasons, path, title_of(artefact))
        else:
            title = f"{title_of(artefact)}\n{shown.request.title}"
            draw_schedules(shown.graph, shown.schedules, path, title, reasons)
    rows = [] if shown is None else _rows(shown)
    rows += [{"policy": row.policy, "status": row.status} for row in failed.values()]
    write_rows(results_dir / f"{stem}.csv", rows)


def _rows(shown: CountedGraph) -> list[Row]:
    graph = shown.graph
    rows: list[Row] = []
    for policy, schedule in shown.schedules.items():
        sizes = np.diff(schedule.starts)
        batch_of = np.empty(graph.n_vertices, dtype=np.int64)
        batch_of[schedule.order] = np.repeat(np.arange(1, schedule.n_batches + 1), sizes)
        rows += [
            {
                "policy": policy,
                "status": "ok",
                "vertex": v,
                "type": graph.type_names[graph.types[v]],
                "arguments": " ".join(map(str, graph.args_of(v).tolist())),
                "batch": int(batch_of[v]),
            }
            for v in range(graph.n_vertices)
        ]
    return rows
