"""Invented batch counts, for tests of tables and figures."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from dynbatch.harness.commands import schedule
from dynbatch.harness.contracts.model import find_model_class
from dynbatch.harness.planning.sweep import Sweep
from dynbatch.harness.planning.yaml_files import read_mapping
from dynbatch.harness.values.paths import CONF_DIR

Change = Callable[[dict[str, Any]], dict[str, Any]]
SEED = "learning.seed"
LEARNED = ("fsm_base", "fsm_max", "fsm_sort")
MADE_UP = {
    "status": "ok",
    "cpu": "Made-up CPU @ 3 GHz",
    "count_id": "count-made-up",
    "source_sha256": "a" * 64,
    "counted_at": "2026-01-01T00:00:00+00:00",
}
LEARNING = {"variant": "released", "fallback": "last", "trials": 1000, "seed": 0}


def made_up_row(point: Mapping[str, str], **changes: Any) -> dict[str, Any]:
    """Return a row whose numbers depend only on its settings; three nodes are parameters."""
    batch_size = int(point["batch_size"])
    bound = 20 + len(point["model"]) + batch_size
    n_batches = bound + zlib.crc32(point["policy"].encode()) % 9
    row: dict[str, Any] = {
        **point,
        **MADE_UP,
        "batch_size": batch_size,
        "outputs": "vertices",
        "offset": 0,
        "n_vertices": 10 * bound,
        "n_batches": n_batches,
        "lower_bound": bound,
        "n_nodes_ed": 30 * bound,
        "n_batches_ed": 3 * n_batches,
        "lower_bound_ed": 3 * bound,
        "n_unbatchable_ed": 3,
        "schedule_s": 1e-3,
    }
    seed = int(row.pop(SEED, 0))
    if point["policy"] in LEARNED:
        row |= {"n_batches": n_batches + seed, "n_batches_ed": 3 * (n_batches + seed)}
        row |= {"learning": LEARNING | {"seed": seed}, "learn_s": 0.25, "learn_s_ed": 0.5}
        row |= {"unseen_fraction_ed": 0.0, "n_trials": 1000, "n_trials_ed": 50}
    after = {"n_batches": [3 * n_batches], "lower_bound": [3 * bound], "ratio": n_batches / bound}
    row["following_ed"] = after | {"unseen_fraction": 0.125 if "learning" in row else None}
    return row | changes


def failed_row(row: Mapping[str, Any], status: str, reason: str) -> dict[str, Any]:
    """Return the row of the same count with a failed status."""
    kept = ("model", "dataset", "split", "batch_size", "granularity", "outputs", "offset", "policy")
    kept += ("count_id", *(("learning",) if "learning" in row else ()))
    limits = {"time_s": 600.0, "memory_bytes": 0}
    failed = {"status": status, "reason": reason, "limits": limits}
    return MADE_UP | {name: row[name] for name in kept} | failed


def made_up_rows(sweep: Sweep) -> list[dict[str, Any]]:
    """Return a row for each combination; a model has the first dataset of its own kind."""
    keys = ("model", "split", "batch_size", "granularity", "policy", SEED)
    defaults = {"split": "train", "granularity": "vertex", SEED: "0"}
    values = [sweep.get_values(key, defaults.get(key, "")) for key in keys]
    rows = []
    for combination in product(*values):
        point = dict(zip(keys, combination, strict=True))
        row = made_up_row({**point, "dataset": _choose_dataset(point["model"], sweep)})
        options = {k: v[0] for k, v in sweep.settings.items() if k.startswith("model.options.")}
        rows.append(row | {"count_id": f"count-{'-'.join((*combination, *options.values()))}"})
    return rows


def _choose_dataset(model: str, sweep: Sweep) -> str:
    module = read_mapping(CONF_DIR / f"model/{model}.yaml")["model"]
    kinds = {
        name: read_mapping(CONF_DIR / f"dataset/{name}.yaml")["instance_kind"]
        for name in sweep.get_values("dataset")
    }
    return next(
        name for name, kind in kinds.items() if kind == find_model_class(module).instance_kind
    )


def write_real_counts(sweeps: tuple[Sweep, ...], results_dir: Path) -> None:
    """Count batches, for figures that draw the graph itself and compare it with its counts."""
    for sweep in sweeps:
        assert schedule.main([*sweep.overrides, f"out={sweep.build_path(results_dir)}"]) == 0


def write_made_up_counts(
    sweeps: tuple[Sweep, ...], results_dir: Path, change: Change = lambda row: row
) -> None:
    """Write every sweep's file; `change` may replace each row."""
    for sweep in sweeps:
        path = sweep.build_path(results_dir)
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [change(row) for row in made_up_rows(sweep)]
        path.write_text(json.dumps(rows), encoding="utf-8")
