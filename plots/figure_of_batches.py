"""One mini-batch as a graph, a panel per policy, every vertex with its batch.

show: {graph: plain}   # the sweep has one model, data set and batch size
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from plots.artefact import Artefact
from plots.counted_graph import counted_graph
from plots.draw_graph import draw_schedules
from plots.style import FIXED_METADATA
from plots.tidy import write_rows
from plots.words import title_of


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write figures/<name>.pdf, .png and .csv, a row per policy and vertex."""
    (stem,) = artefact.presentation.stems
    shown = counted_graph(artefact)
    title = f"{title_of(artefact)}\n{shown.request.title}"
    (results_dir / stem).parent.mkdir(parents=True, exist_ok=True)
    for suffix in FIXED_METADATA:
        draw_schedules(shown.graph, shown.schedules, results_dir / f"{stem}{suffix}", title)
    graph = shown.graph
    rows: list[dict[str, object]] = []
    for policy, schedule in shown.schedules.items():
        sizes = np.diff(schedule.starts)
        batch_of = np.empty(graph.n_vertices, dtype=np.int64)
        batch_of[schedule.order] = np.repeat(np.arange(1, schedule.n_batches + 1), sizes)
        rows += [
            {
                "policy": policy,
                "vertex": v,
                "type": graph.type_names[graph.types[v]],
                "arguments": " ".join(map(str, graph.args_of(v).tolist())),
                "batch": int(batch_of[v]),
            }
            for v in range(graph.n_vertices)
        ]
    write_rows(results_dir / f"{stem}.csv", rows)
