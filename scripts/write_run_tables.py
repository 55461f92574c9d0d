"""Write the tables of committed `bench -m` runs into the README next to their records.

python -m scripts.write_run_tables
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from harness.planning.kinds import read_systems
from harness.records.numbers import RATIO, numbers, ratios
from harness.records.tidy import frame
from harness.values.places import CONF_DIR, ROOT
from plots.experiment import read_labels
from plots.tables.cells import EN_DASH, format_number, format_ratio, format_significant, pivot
from plots.write import to_pipes
from scripts.write_pages import MarkedPage

REFERENCE = ROOT / "results" / "reference"
# The system of each run that the others are compared with.
RUNS: Mapping[Path, str] = {
    REFERENCE / "amd-epyc-2cpu-2026-11-24" / "programs": "acrobat",
    REFERENCE / "amd-epyc-2cpu-2026-11-23" / "engine": "vertex",
}
KEYS = ["model", "mode", "hidden_size", "batch_size", "threads"]
HEADERS = dict(zip(KEYS, ("model", "mode", "hidden", "batch", "threads"), strict=True))
BASELINE_KIND = "framework"
SPEED, BASELINE, SPEEDUP = "instances/s", "fastest baseline", "speedup over it"


def get_page(folder: Path) -> MarkedPage:
    """Return the page whose tables are written."""
    return MarkedPage(folder / "README.md", "write_run_tables")


def build_tables(folder: Path, base: str) -> str:
    """Return the tables of a run: the base and its fastest baseline, then the base over all."""
    rows = frame(folder)
    own = rows[rows.system == base]
    speeds = numbers(rows, [*KEYS, "system"])
    gains = numbers(ratios(rows, own, KEYS), [*KEYS, "system"], RATIO)
    answers = _select_fastest_baselines(speeds, gains, base)
    kinds = {system.name: system.kind for system in read_systems(CONF_DIR)}
    is_baseline = gains.system.map(kinds) == BASELINE_KIND
    parts = [
        f"Speed of `{base}`, and of the fastest baseline of each workload. Speedups are taken"
        " within rounds; intervals: the range over rounds, rounded outward.",
        _arrange_answers(speeds, answers, base),
        describe_mean(answers),
        f"Speedup of `{base}` over each baseline (medians; {EN_DASH}: not measured, or without a"
        " number in some round).",
        _arrange_gains(gains[is_baseline], base),
        "The same over other systems on the shared engine.",
        _arrange_gains(gains[~is_baseline], base),
    ]
    return "\n\n".join(parts) + "\n"


def _select_fastest_baselines(speeds: pd.DataFrame, gains: pd.DataFrame, base: str) -> pd.DataFrame:
    kinds = {system.name: system.kind for system in read_systems(CONF_DIR)}
    baselines = speeds[(speeds.system.map(kinds) == BASELINE_KIND) & (speeds.status == "ok")]
    fastest = baselines.sort_values("value", ascending=False).drop_duplicates(KEYS)
    fastest = fastest[[*KEYS, "system", "value"]].rename(columns={"value": "baseline_speed"})
    return gains.merge(fastest, on=[*KEYS, "system"], how="inner", validate="1:1")


def _arrange_answers(speeds: pd.DataFrame, answers: pd.DataFrame, base: str) -> str:
    labels = read_labels(CONF_DIR)
    own = speeds[speeds.system == base]
    cells = own[KEYS].assign(label=SPEED, text=[format_number(row) for _, row in own.iterrows()])
    texts = answers.baseline_speed.map(format_significant)
    names = answers.system.map(labels).str.cat(texts, sep=": ")
    gains = [format_ratio(*row) for row in answers[["value", "low", "high"]].to_numpy()]
    parts = [
        cells,
        answers[KEYS].assign(label=BASELINE, text=names),
        answers[KEYS].assign(label=SPEEDUP, text=gains),
    ]
    return _pivot_texts(pd.concat(parts, ignore_index=True), labels)


def _arrange_gains(gains: pd.DataFrame, base: str) -> str:
    labels = read_labels(CONF_DIR)
    others = gains[(gains.system != base) & (gains.status == "ok")]
    texts = others.assign(label=others.system.map(labels), text=others.value.map("{:.2f}".format))
    return _pivot_texts(texts, labels)


def _pivot_texts(texts: pd.DataFrame, labels: Mapping[str, str]) -> str:
    ordered = texts.sort_values(["hidden_size", "batch_size"], kind="stable")
    printed = ordered.assign(model=ordered.model.map(labels))
    shown = {key: HEADERS[key] for key in KEYS if key == "model" or len(printed[key].unique()) > 1}
    return "\n".join(to_pipes(pivot(printed, shown, ["label"], lambda row: str(row.text))))


def describe_mean(answers: pd.DataFrame) -> str:
    """State the geometric mean of the speedups over the fastest baselines, and the smallest."""
    mean = np.exp(np.log(answers.value).mean())
    return (
        f"Over the fastest baseline: geometric mean {mean:.2f} over {len(answers)} workloads,"
        f" smallest {answers.value.min():.2f}."
    )


def main() -> None:
    """Write the tables of all runs."""
    for folder, base in RUNS.items():
        get_page(folder).write(build_tables(folder, base))


if __name__ == "__main__":
    main()
