"""Verify on this machine that the committed results hold: ten workloads in about five minutes.

    python -m scripts.verify_reference [DIRECTORY]

Measures the engine next to a baseline on ten workloads of docs/results.md, each pair in one block,
and compares their ratio with the committed one. The baseline is the fastest that `make install`
has, which leaves out what a C++ compiler builds (DyNet, C++ by hand). Records go to DIRECTORY, by
default results/verify; valid ones are reused, so the same command resumes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dynbatch.harness.api import measure
from dynbatch.harness.errors import BenchError, ConfigError
from dynbatch.harness.planning.artifacts import build_choices, find_available
from dynbatch.harness.planning.grid import EXPERIMENT
from dynbatch.harness.records.numbers import RATIO, numbers, ratios
from dynbatch.harness.terminal.exit_handling import make_command, print_error
from dynbatch.plots.tables.answers import WORKLOAD, select_workloads
from dynbatch.plots.tables.cells import EN_DASH, format_ratio
from dynbatch.plots.write import to_pipes
from scripts.reference_results import BETWEEN_RUNS, FIRST_CPU, load_answers, load_results_of

N_POINTS = 10
ENGINE = "vertex"
COMPILED = ("DyNet", "C++ by hand")  # frameworks that need a C++ compiler
MIN_SECONDS = 1.0
# Chosen here, not by the plan of the committed record.
OWN_KEYS = (EXPERIMENT, "system", "mode", "timing.min_seconds")
HOLDS, ORDER_HOLDS, DIFFERS = "holds", "order holds", "differs"


@dataclass(frozen=True, slots=True)
class Point:
    """Workload of the committed results, and the engine's speedup over a baseline.

    Attributes:
        settings: planned settings of the engine's trial.
        low, high: interval of the speedup.
    """

    workload: str
    baseline: str
    settings: Mapping[str, object]
    mode: str
    speedup: float
    low: float
    high: float

    @property
    def folder(self) -> str:
        """Name of a directory for its records."""
        return "".join(c if c.isalnum() else "_" for c in self.workload)

    def judge(self, speedup: float) -> str:
        """Return whether a measured speedup confirms the committed one.

        It holds if the measured speedup is in the committed interval, widened by the largest change
        between runs of unchanged code. Otherwise the order may still hold, if it was clear.
        """
        if self.low / BETWEEN_RUNS <= speedup <= self.high * BETWEEN_RUNS:
            return HOLDS
        is_faster, is_slower = self.low > BETWEEN_RUNS, self.high < 1 / BETWEEN_RUNS
        same = (is_faster and speedup > 1) or (is_slower and speedup < 1)
        return ORDER_HOLDS if same else DIFFERS


@make_command("verify-reference", again="make verify-reference")
def main(arguments: list[str]) -> int:
    """Measure and print the table; return 0, or 1 if no point has a number."""
    if len(arguments) > 1:
        raise ConfigError(f"expected at most one directory, got {' '.join(arguments)}")
    folder = arguments[0] if arguments else "results/verify"
    points = list_points()
    measured = []
    for k, point in enumerate(points, start=1):
        print(f"{k} of {len(points)}: {point.workload}, {point.baseline}", file=sys.stderr)
        measured.append(measure_point(point, Path(folder) / point.folder))
    print(*to_pipes(build_table(points, measured)), sep="\n")
    return 0 if any(rows.value.notna().any() for rows in measured) else 1


def list_points() -> list[Point]:
    """Return the workloads with the smallest speedups, of every experiment before a second one."""
    answers = load_answers(FIRST_CPU)
    is_installed = ~answers.is_engine & ~answers.framework.isin(COMPILED)
    answers = answers[is_installed & (answers.speedup_status == "ok")].sort_values("speedup")
    answers = answers.drop_duplicates(WORKLOAD)
    answers["rank"] = answers.groupby("experiment").cumcount()
    chosen = answers.sort_values("rank", kind="stable").head(N_POINTS)
    experiment = load_results_of("answers", FIRST_CPU)
    rows = select_workloads(experiment)
    engine = rows[rows.is_engine & (rows.status == "ok")].drop_duplicates(WORKLOAD)
    engine = engine.assign(settings=[experiment.settings[point] for point in engine.point])
    chosen = chosen.merge(engine[[*WORKLOAD, "settings", "mode"]], on=WORKLOAD, validate="1:1")
    speedups = ["speedup", "speedup_low", "speedup_high"]
    columns = chosen[["workload", "system", "settings", "mode", *speedups]]
    return [Point(*values) for values in columns.itertuples(index=False)]


def build_settings(point: Point, environ: Mapping[str, str]) -> dict[str, object]:
    """Return the settings that measure a point, on a fallback if its data are missing."""
    planned = {key: value for key, value in point.settings.items() if key not in OWN_KEYS}
    dataset = find_available(str(planned["dataset"]), build_choices({}, environ))
    return planned | {
        "dataset": dataset,
        "device": "cpu",
        "mode": point.mode,
        "system": [ENGINE, point.baseline],
        "timing.min_seconds": MIN_SECONDS,
    }


def measure_point(point: Point, folder: Path) -> pd.DataFrame:
    """Measure a point, and return the number of the engine's speedup, with the dataset.

    A trial without a number has its status. The frame is empty if a trial was refused, after its
    reason was printed.
    """
    try:
        rows = measure(build_settings(point, os.environ), results_dir=folder)
    except BenchError as error:
        print_error(error, "verify-reference")
        return pd.DataFrame(columns=["value", "status", "dataset"])
    gains = ratios(rows, rows[rows.system == ENGINE], [])
    return numbers(gains[gains.system == point.baseline], ["system", "dataset"], RATIO)


def build_table(points: Sequence[Point], measured: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return a row per point: committed and measured speedup, and what holds."""
    refused = pd.Series({"status": "refused", "dataset": EN_DASH})
    cells = []
    for point, numbers_here in zip(points, measured, strict=True):
        here = refused if numbers_here.empty else numbers_here.iloc[0]
        is_measured = here.status == "ok"
        cells.append(
            {
                "workload": point.workload,
                "baseline": point.baseline,
                "dataset here": here.dataset,
                "committed speedup": format_ratio(point.speedup, point.low, point.high),
                "speedup here": f"{here.value:.2f}" if is_measured else EN_DASH,
                "result": point.judge(here.value) if is_measured else here.status,
            }
        )
    return pd.DataFrame(cells).set_index("workload")


if __name__ == "__main__":
    sys.exit(main())
