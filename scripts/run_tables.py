"""Tables of a run of `bench -m`: its speeds, and speedups of one system over all others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from dynbatch.harness.planning.kinds import read_systems
from dynbatch.harness.records.numbers import RATIO, numbers, ratios
from dynbatch.harness.records.tidy import frame
from dynbatch.harness.values.paths import CONF_DIR
from dynbatch.plots.experiment import read_labels
from dynbatch.plots.tables.cells import (
    EN_DASH,
    format_number,
    format_ratio,
    format_significant,
    pivot_numbers,
)
from dynbatch.plots.write import to_pipes

RUN_KEYS = {
    **{"model": "model", "mode": "mode", "hidden_size": "hidden", "batch_size": "batch"},
    "threads": "threads",
}


def build_run_tables(folder: Path, base: str) -> str:
    """Return the tables of a run: the base and its fastest baseline, then the base over all."""
    rows, labels = frame(folder), read_labels(CONF_DIR)
    by = [*RUN_KEYS, "system"]
    kinds = {system.name: system.kind for system in read_systems(CONF_DIR)}
    speeds = numbers(rows, by)
    gains = numbers(ratios(rows, rows[rows.system == base], [*RUN_KEYS]), by, RATIO)
    is_baseline = speeds.system.map(kinds) == "framework"
    measured = speeds[is_baseline & (speeds.status == "ok")][[*by, "value"]]
    ranked = gains.merge(measured.rename(columns={"value": "speed"}), on=by, validate="1:1")
    best = ranked.sort_values("value", kind="stable").drop_duplicates([*RUN_KEYS]).sort_index()
    mean = np.exp(np.log(best.value).mean())
    others = gains[(gains.system != base) & (gains.status == "ok")]
    others = others.assign(label=others.system.map(labels), text=others.value.map("{:.2f}".format))
    is_baseline = others.system.map(kinds) == "framework"
    parts = [
        f"Throughput of `{base}` and of the fastest baseline of each workload. Speedups are"
        " computed within rounds; intervals: range over rounds, rounded outward.",
        _arrange_run(_tell_fastest(speeds[speeds.system == base], best, labels), labels),
        f"Speedup over the fastest baseline: geometric mean {mean:.2f} over {len(best)} workloads,"
        f" smallest {best.value.min():.2f}.",
        f"Speedup of `{base}` over each baseline (medians; {EN_DASH}: not measured, or without a"
        " number in some round).",
        _arrange_run(others[is_baseline], labels),
        f"Speedup of `{base}` over other systems on the shared engine (medians).",
        _arrange_run(others[~is_baseline], labels),
    ]
    return "\n\n".join(parts)


def _tell_fastest(own: pd.DataFrame, best: pd.DataFrame, labels: Mapping[str, str]) -> pd.DataFrame:
    """Return the texts of three columns: throughput, fastest baseline, and speedup over it."""
    names = best.system.map(labels).str.cat(best.speed.map(format_significant), sep=": ")
    gains = [format_ratio(*row) for row in best[["value", "low", "high"]].to_numpy()]
    texts = [format_number(row) for _, row in own.iterrows()]
    return pd.concat(
        [
            own.assign(label="instances/s", text=texts),
            best.assign(label="fastest baseline", text=names),
            best.assign(label="speedup over it", text=gains),
        ],
        ignore_index=True,
    )


def _arrange_run(texts: pd.DataFrame, labels: Mapping[str, str]) -> str:
    ordered = texts.sort_values(["hidden_size", "batch_size"], kind="stable")
    printed = ordered.assign(model=ordered.model.map(labels))
    varied = [key for key in RUN_KEYS if key == "model" or len(printed[key].unique()) > 1]
    return pivot_texts(printed, {key: RUN_KEYS[key] for key in varied}, "label")


def pivot_texts(texts: pd.DataFrame, rows: Mapping[str, str], column: str) -> str:
    """Arrange the column `text` as a Markdown table."""
    return "\n".join(to_pipes(pivot_numbers(texts, rows, [column], lambda row: str(row.text))))
