"""Thousands of steps of one system in this process: what came of them, as JSON on the last line.

python -m scripts.campaign_parts.steps SYSTEM N_STEPS SECONDS
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from harness.contracts.system import System, load_adapter
from harness.errors import UnsupportedTrial
from harness.machine.process import resident_memory_bytes
from harness.measuring.clock import NullClock, stopwatch_of
from harness.planning.resolve import specs_of
from harness.trials.spec import TrialSpec
from harness.trials.workload import Workload, load_workload, run_settings

SETTLED = 200  # steps, after which caches and pools are full
FEW_WORDS = "dataset.options.vocab_modulo=32"
SENTENCES = (
    "dataset.options.length=6",
    "dataset.options.n_words=32",
    "dataset.options.n_classes=4",
)
WORKLOADS = (  # the first that a system runs
    ("model=tree_lstm", "dataset=sst_synthetic", FEW_WORDS),
    ("model=bilstm", "dataset=bilstm_synthetic", *SENTENCES),
    ("model=var_lstm", "dataset=ptb_synthetic", FEW_WORDS),
    ("model=lattice_lstm", "dataset=lattice_synthetic", FEW_WORDS),
    ("model=cell", "dataset=complete_trees", "dataset.options.n_leaves=2", "mode=infer"),
)
SIZES = (
    *("hidden_size=8", "batch_size=2", "timing.n_mini_batches=2"),
    *("learning_rate=1e-4", "learning.trials=50"),
)


def main(arguments: Sequence[str]) -> int:
    """Print {"skipped": reason} or what was found; 0 either way."""
    name, n_steps, seconds = arguments[0], int(arguments[1]), float(arguments[2])
    try:
        spec, workload, system = _prepared(name)
    except UnsupportedTrial as error:
        print(json.dumps({"skipped": str(error)}))
        return 0
    found = _stepped(workload, system, n_steps, time.monotonic() + seconds)
    print(json.dumps({"model": spec.model, **found}))
    return 0


def _prepared(name: str) -> tuple[TrialSpec, Workload, System]:
    """A system ready to run; raises UnsupportedTrial where it runs none of the workloads here."""
    reason = "no workload fits"
    for lines in WORKLOADS:
        (spec,) = specs_of([[f"system={name}", *lines, *SIZES]]).values()
        workload = load_workload(spec)
        adapter = load_adapter(spec.adapter)
        settings = run_settings(spec)
        refused = adapter.skip(workload.model, settings)
        if refused is None:
            system = adapter(settings)
            system.prepare(workload.model, workload.weights)
            if system.learns:
                system.learn(workload.mini_batches[0])
            if system.chooses:
                system.choose(workload.mini_batches, stopwatch_of(system.synchronize))
            for mini_batch in workload.mini_batches:
                system.compile_for(mini_batch)
            return spec, workload, system
        reason = refused
    raise UnsupportedTrial(reason)


def _stepped(workload: Workload, system: System, n_steps: int, until: float) -> dict[str, Any]:
    losses: list[float] = []
    settled_bytes = resident_memory_bytes()
    for n_done, loss in enumerate(_losses(workload, system, n_steps, until), 1):
        losses.append(loss)
        if n_done == SETTLED:
            settled_bytes = resident_memory_bytes()
    return {
        "n_steps": len(losses),
        "losses": hashlib.sha256(np.array(losses).tobytes()).hexdigest(),
        "first_losses": losses[:4],
        "parameters": _sha256(system),
        "is_finite": bool(np.isfinite(losses).all()),
        "settled_bytes": settled_bytes,
        "end_bytes": resident_memory_bytes(),
    }


def _losses(workload: Workload, system: System, n_steps: int, until: float) -> Iterator[float]:
    """The loss of each step; fewer where the time is up."""
    clock = NullClock()
    for number in range(n_steps):
        if time.monotonic() > until:
            return
        system.load(workload.mini_batches[number % len(workload.mini_batches)])
        system.run(clock)
        yield float(system.last_loss())


def _sha256(system: System) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(system.parameters().items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
