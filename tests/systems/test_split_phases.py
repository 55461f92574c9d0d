"""Segments of Fig 2, from phase times and the output of DyNet's profiler."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dynbatch.harness.trials.spec import TrialSpec
from scripts.split_dynet_phases import N_PASSES, compute_segments_ms, run_in_process, sum_batches_ms

PRINTED = """BatchSize:3 tanh(a)
{"construct": 0.1}
Timing Info:
      40.5\t45%\tBWD a + a * a
     0.005\t0.1%\tFWD parameters({10,3}) @ 0x55db52896da0
      1e-03\t0.001%\tFWD tanh(a)
        50\t100%\t(total time)
"""


def test_batches_are_summed_by_direction() -> None:
    found = sum_batches_ms(PRINTED, n_instances=2)
    assert found == pytest.approx({"FWD": 0.006 / 2 / N_PASSES, "BWD": 40.5 / 2 / N_PASSES})


def test_segments_are_all_that_was_timed() -> None:
    phases = {"construct": 1.0, "forward": 5.0, "backward": 7.0, "update": 0.5}
    found = compute_segments_ms(phases, {"FWD": 4.0, "BWD": 6.0})
    assert found == {
        **{"for graph": 2.0, "for calc": 4.0, "back graph": 1.0, "back calc": 6.0, "update": 0.5}
    }
    assert sum(found.values()) == sum(phases.values())


def test_passes_run_in_the_environment_of_a_worker(
    monkeypatch: pytest.MonkeyPatch, make_spec: Callable[..., TrialSpec]
) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    seen: dict[str, str] = {}

    def run(command: list[str], **settings: Any) -> SimpleNamespace:
        seen.update(settings.get("env") or {"no": "environment"})
        return SimpleNamespace(stdout="")

    monkeypatch.setattr(subprocess, "run", run)
    run_in_process(make_spec(threads=3), profiling=False)
    assert seen["OPENBLAS_NUM_THREADS"] == "3"
    assert "OPENBLAS_CORETYPE" not in seen
