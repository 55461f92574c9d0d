"""Thousands of steps of every installed system, twice with one seed.

python -m tests.campaign.test_determinism SYSTEM N_STEPS SECONDS prints one run as JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.contracts.system import System, load_adapter
from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.harness.machine.process import measure_resident_bytes
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.overrides import read_settings
from dynbatch.harness.trials.workload import Workload, build_run_settings, load_workload
from dynbatch.harness.values.paths import CONF_DIR
from tests.support.fake_time import NullClock
from tests.support.sandbox import assert_ended, campaign, run_module, sandbox

SYSTEMS = sorted(path.stem for path in (CONF_DIR / "system").glob("*.yaml"))
N_STEPS = 3200
SETTLED = 200  # steps, after which caches and pools are full
MAX_S = 40.0  # time limit of all steps; slow systems run fewer
LIMIT_S = 160.0  # includes imports and compilation
GROWTH_BYTES = 24 * 2**20
FEW_WORDS = "dataset.options.vocab_modulo=32"
WORKLOADS = (  # each system runs the first that it supports
    ("model=tree_lstm", "dataset=sst_synthetic", FEW_WORDS),
    ("model=var_lstm", "dataset=ptb_synthetic", FEW_WORDS),
    ("model=lattice_lstm", "dataset=lattice_synthetic", FEW_WORDS),
    ("model=cell", "dataset=complete_trees", "dataset.options.n_leaves=2", "mode=infer"),
)
SIZES = (
    *("hidden_size=8", "batch_size=2", "timing.n_mini_batches=2"),
    *("learning_rate=1e-4", "learning.trials=50"),
)


def main(arguments: Sequence[str]) -> int:
    """Print the result of many steps, or the reason if the system is unsupported."""
    name, n_steps, seconds = arguments[0], int(arguments[1]), float(arguments[2])
    try:
        workload, system = prepare(name)
    except UnsupportedTrial as error:
        print(json.dumps({"unsupported": str(error)}))
        return 0
    print(json.dumps(step(workload, system, n_steps, time.monotonic() + seconds)))
    return 0


def prepare(name: str) -> tuple[Workload, System]:
    """Prepare a system for its first supported workload, or raise UnsupportedTrial."""
    reason = "no workload fits"
    for lines in WORKLOADS:
        spec = Composer().resolve_trial({"system": name} | read_settings([*lines, *SIZES]))
        workload = load_workload(spec)
        adapter = load_adapter(spec.adapter)
        settings = build_run_settings(spec)
        refused = adapter.skip(workload.model, settings)
        if refused is None:
            system = adapter(settings)
            prepare_system(system, workload)
            return workload, system
        reason = refused
    raise UnsupportedTrial(reason)


def prepare_system(system: System, workload: Workload) -> None:
    """Prepare a system, let it learn, and compile for all mini-batches."""
    system.prepare(workload.model, workload.weights)
    if system.learns:
        system.learn(workload.mini_batches[0])
    for mini_batch in workload.mini_batches:
        system.compile_for(mini_batch)


def step(workload: Workload, system: System, n_steps: int, until: float) -> dict[str, Any]:
    """Run steps until their number or the time is reached; return digests and memory growth."""
    losses: list[float] = []
    settled_bytes = measure_resident_bytes()
    clock = NullClock()
    while len(losses) < n_steps and time.monotonic() < until:
        system.load(workload.mini_batches[len(losses) % len(workload.mini_batches)])
        system.run(clock)
        losses.append(float(system.last_loss()))
        if len(losses) == SETTLED:
            settled_bytes = measure_resident_bytes()
    digest = hashlib.sha256()
    for name, value in sorted(system.parameters().items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return {
        "n_steps": len(losses),
        "losses": hashlib.sha256(np.array(losses).tobytes()).hexdigest(),
        "parameters": digest.hexdigest(),
        "is_finite": bool(np.isfinite(losses).all()),
        "growth_bytes": measure_resident_bytes() - settled_bytes,
    }


def run_steps(cache: Path, name: str, n_steps: int, seconds: float) -> dict[str, Any]:
    """Run steps in a separate process; skip the test if the system is unsupported."""
    with sandbox(cache) as box:
        arguments = (name, str(n_steps), str(seconds))
        ended = box.run(run_module("tests.campaign.test_determinism", *arguments), LIMIT_S)
    assert_ended(ended, (0,))
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    if found.get("n_steps", 0) == 0:
        pytest.skip(found.get("unsupported", "no step was done in time"))
    return found


def assert_repeated(first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    """Fail if two runs with one seed differ, or both violate a requirement."""
    for name in ("n_steps", "losses", "parameters"):
        assert first[name] == second[name], name
    assert first["is_finite"]
    assert min(first["growth_bytes"], second["growth_bytes"]) <= GROWTH_BYTES


@campaign
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_seed_decides_everything(cache: Path, name: str) -> None:
    first = run_steps(cache, name, N_STEPS, MAX_S)
    # The second run has as many steps as the first, even if the machine is slower by then.
    assert_repeated(first, run_steps(cache, name, first["n_steps"], LIMIT_S))


@pytest.mark.slow
def test_a_few_steps_are_repeated(cache: Path) -> None:
    first, second = (run_steps(cache, "reference", 20, MAX_S) for _ in range(2))
    assert_repeated(first, second)
    assert first["n_steps"] == 20


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
