"""Records without any measurement, for tests of what is drawn from records."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from harness.planning.artefacts import Choices, PlannedTrial
from harness.records.record import CheckVerdict, Record, Trial, write_record
from harness.values.places import CONF_DIR
from tests.support.plain_records import of_one_piece

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
    **{
        f"subgraph_{name}": f"Subgraph {name}"
        for name in (
            "dynet",
            "dynet_pre_gather",
            "dynet_run_time",
            "pq",
            "pq_layout",
            "pq_run_time",
        )
    },
}
Change = Callable[[PlannedTrial, int], dict[str, Any] | None]


def conf_with_made_up_systems(folder: Path) -> Path:
    """Copy conf/ with systems that exist in name only, so that no framework is needed.

    Kinds, models and the like are those of the shipped ones.
    """
    conf_dir = folder / "conf"
    shutil.copytree(CONF_DIR, conf_dir)
    for path in (conf_dir / "system").glob("*.yaml"):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        content["adapter"] = "systems.null_system"
        content["label"] = LABELS.get(path.stem, content["label"])
        path.write_text(yaml.safe_dump(content))
    return conf_dir


def made_up_record(trial: PlannedTrial, round_: int, **changes: Any) -> Record:
    """A valid record whose numbers depend on nothing but the trial's name and the round."""
    settings = trial.settings
    batch_size, hidden_size = settings["batch_size"], settings["hidden_size"]
    slowness = 1 + zlib.crc32(settings["system"].encode()) % 7
    seconds = (0.004 + batch_size * hidden_size * 1e-6) * slowness * (1 + 0.04 * round_)
    values: dict[str, Any] = {
        "status": "ok",
        "trial": Trial(
            system=settings["system"],
            policy=None,
            model=settings["model"],
            dataset=settings["dataset"],
            batch_size=batch_size,
            hidden_size=hidden_size,
            mode=settings.get("mode", "train"),
            device="cpu",
            threads=1,
            seed=0,
            round=round_,
        ),
        "trial_id": trial.trial_id,
        "phases_s": {
            "construct": 0.1 * seconds,
            "schedule": 0.05 * seconds,
            "forward": 0.4 * seconds,
            "backward": 0.4 * seconds,
            "update": 0.05 * seconds,
        },
        "samples_s": (seconds,) * 12,
        "n_mini_batches": 4,
        "n_instances": 4 * batch_size,
        "compile_s": 0.5 * seconds,
        "n_copies": float(slowness),
        "bytes_copied": 1024.0 * slowness,
        "check": CheckVerdict(status="ok", max_rel_err=1e-6),
        "source_sha256": "0" * 64,
        "machine": MACHINE,
        "versions": {"made_up": "1.0"},
        "config": {},
        "started_at": "2026-01-01T00:00:00+00:00",
        "finished_at": "2026-01-01T00:00:01+00:00",
    }
    return Record(**of_one_piece(values, changes))


def write_made_up_records(
    trials: tuple[PlannedTrial, ...], choices: Choices, change: Change | None = None
) -> None:
    """Write every round's record; `change` gives fields to replace, or None to leave it out."""
    for trial in trials:
        for round_, path in enumerate(trial.record_paths(choices.results_dir)):
            changes = change(trial, round_) if change else {}
            if changes is not None:
                write_record(path, made_up_record(trial, round_, **changes))
