"""Invented records of trials and counts, from a few values each."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from dynbatch.harness.planning.artifacts import Choices, PlannedTrial
from dynbatch.harness.records.count_row import AnyCount, parse_count, write_count
from dynbatch.harness.records.record import (
    CheckVerdict,
    Record,
    build_record_path,
    build_trial,
    write_record,
)
from dynbatch.harness.records.turns import Turn, collect_turn_seconds, compute_pass_s
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.values.paths import CONF_DIR
from tests.support.made_up_counts import made_up_row

SPEC: dict[str, Any] = {
    "system": "fake",
    "adapter": "tests.support.odd_system",
    "model": "tree_fc",
    "model_module": "dynbatch.harness.models.tree_fc",
    "dataset": "complete_trees",
    "loader": "dynbatch.datasets.complete_trees",
    "batch_size": 2,
    "hidden_size": 8,
}
POINT = {
    "model": "tree_lstm",
    "dataset": "sst",
    "split": "train",
    "batch_size": "4",
    "granularity": "vertex",
    "policy": "agenda",
}


def plain_record(round_: int = 0, changes: dict[str, Any] | None = None, **spec: Any) -> Record:
    """Build one round of a trial; `changes` apply to the record, `spec` to the trial."""
    return record_of(TrialSpec(**(SPEC | spec | {"round": round_})), changes or {})


def record_of(spec: TrialSpec, changes: Mapping[str, Any]) -> Record:
    """Build the record of a successful trial with changes."""
    values: dict[str, Any] = {
        "status": "ok",
        "trial": build_trial(spec),
        "trial_id": spec.trial_id,
        "passes_s": (0.75,),
        "n_mini_batches": 2,
        "n_instances": 4,
        "source_sha256": "a" * 64,
        "machine": {"cpu": "Some CPU", "usable_cpus": [0, 1], "gpus": []},
        "versions": {"python": "3.11", "numpy": "2.0", "harness": "1", "fake": "1.0"},
        "config": spec.to_dict(),
        "started_at": "2026-01-01T00:00:00+00:00",
        "finished_at": "2026-01-01T00:00:01+00:00",
    }
    return Record(**of_one_piece(values, changes))


def of_one_piece(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's values with changes; passes follow from a given speed, or vice versa."""
    changed = values | changes
    n_instances = changed["n_instances"]
    speed = changes.get("instances_per_s")
    if speed is not None and "passes_s" not in changes:
        return changed | {"passes_s": (n_instances / speed,)}
    passes_s = changed["passes_s"]
    printed = {"instances_per_s": None}
    if passes_s:
        median_s = compute_pass_s(collect_turn_seconds(passes_s, changed.get("turns") or ()))
        printed["instances_per_s"] = n_instances / median_s if median_s > 0 else None
    return changed | printed | changes


def turn(cycle: int, n_passes: int = 1, *, is_disturbed: bool = False, cpu_s: float = 1.0) -> Turn:
    quiet: dict[str, Any] = {"wall_s": 1.0, "steal_s": 0.0, "wait_s": 0.0, "n_switches": 0}
    return Turn(cycle=cycle, n_passes=n_passes, cpu_s=cpu_s, is_disturbed=is_disturbed, **quiet)


def plain_count(name: str = "count-a", **changes: Any) -> AnyCount:
    return parse_count(json.dumps(made_up_row(POINT, count_id=name, **changes)).encode())


def write_results(results_dir: Path, records: list[Record], counts: list[AnyCount]) -> None:
    """Write records and counts in the layout of `bench` and `bench-schedule`."""
    for record in records:
        write_record(build_record_path(results_dir, record.trial_id, record.trial.round), record)
    for row in counts:
        write_count(results_dir / "raw" / "counts" / f"{row.count_id}.json", row)


def content_of(folder: Path) -> dict[str, bytes]:
    """Return every file below a directory."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


MACHINE = {
    "hostname": "made-up",
    "cpu": "Made-up CPU @ 3 GHz",
    "n_cores": 2,
    "n_cpus": 2,
    "usable_cpus": [0, 1],
    "memory_bytes": 8 << 30,
    "os": "Linux",
    "governor": None,
    "turbo": None,
    "gpus": [],
}
SUBGRAPHS = ("dynet", "dynet_pre_gather", "dynet_run_time", "pq", "pq_layout", "pq_run_time")
LABELS = {
    "vertex": "Vertex engine",
    "cavs": "Cavs preset",
    "fold_policy": "Fold's policy",
    "dynet_policy": "DyNet's policy",
    "unbatched": "Unbatched",
    "dynet": "DyNet agenda",
    "dynet_depth": "DyNet depth",
    "dynet_off": "DyNet off",
    "torch_levels": "PyTorch levels",
    "torch_eager": "PyTorch eager",
    "edbatch": "ED-Batch preset",
    "cavs_dynet": "Cavs DyNet preset",
    **{f"subgraph_{name}": f"Subgraph {name}" for name in SUBGRAPHS},
}
SHARES = {"construct": 0.1, "schedule": 0.05, "forward": 0.4, "backward": 0.4, "update": 0.05}
Change = Callable[[PlannedTrial, int], dict[str, Any] | None]
MakeRecord = Callable[..., Record]


def conf_with_made_up_systems(folder: Path) -> Path:
    """Copy conf/ with placeholder systems, so that no framework is needed.

    Kinds, models and the like are those of the shipped files.
    """
    conf_dir = folder / "conf"
    shutil.copytree(CONF_DIR, conf_dir)
    for path in (conf_dir / "system").glob("*.yaml"):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        content["adapter"] = "dynbatch.systems.null_system"
        content["label"] = LABELS.get(path.stem, content["label"])
        path.write_text(yaml.safe_dump(content))
    return conf_dir


def made_up_record(trial: PlannedTrial, round_: int, **changes: Any) -> Record:
    """Build a valid record whose numbers depend only on the trial's settings and the round."""
    names = ("system", "model", "dataset", "batch_size", "hidden_size", "mode")
    chosen = {name: trial.settings[name] for name in names if name in trial.settings}
    spec = TrialSpec(**(SPEC | chosen | {"round": round_}))
    slowness = 1 + zlib.crc32(spec.system.encode()) % 7
    seconds = (0.004 + spec.batch_size * spec.hidden_size * 1e-6) * slowness * (1 + 0.04 * round_)
    values: dict[str, Any] = {
        "trial_id": trial.trial_id,
        "phases_s": {phase: share * seconds for phase, share in SHARES.items()},
        "passes_s": (4 * seconds,) * 3,
        "n_mini_batches": 4,
        "n_instances": 4 * spec.batch_size,
        "compile_s": 0.5 * seconds,
        "n_copies": float(slowness),
        "bytes_copied": 1024.0 * slowness,
        "check": CheckVerdict(status="ok", max_rel_err=1e-6),
        "source_sha256": "0" * 64,
        "machine": MACHINE,
        "versions": {"made_up": "1.0"},
        "config": {},
    }
    return record_of(spec, of_one_piece(values, changes))


def write_made_up_records(
    trials: tuple[PlannedTrial, ...], choices: Choices, change: Change | None = None
) -> None:
    """Write every round's record; `change` returns fields to replace, or None for no record."""
    for trial in trials:
        for round_, path in enumerate(trial.list_record_paths(choices.results_dir)):
            changes = change(trial, round_) if change else {}
            if changes is not None:
                write_record(path, made_up_record(trial, round_, **changes))
