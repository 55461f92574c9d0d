"""Programs of XLA are found by other processes, and a damaged one is replaced."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

from harness.machine.caches import NAME
from harness.values.places import ROOT
from tests.support.damages import DAMAGES

FOLDER = "jax"
PROGRAM = """
import jax, jax.numpy as jnp, os
from harness.machine import facts
facts.cpu_fingerprint = lambda: os.environ["TESTED_CPU"]
from systems.on_jax.scan import keep_programs
keep_programs()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
found = []
jax.monitoring.register_event_listener(lambda name, **_: found.append(name))
def multiplied(x):
    return (x @ x).sum() + 1
def added(x):
    return (x + x).sum()
x = jnp.ones((8, 8))
print(float(jax.jit(multiplied)(x)), float(jax.jit(added)(x)))
print(found.count("/jax/compilation_cache/cache_hits"))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(util.find_spec("jax") is None, reason="JAX is not installed"),
]


def run(home: Path, cpu: str = "one CPU") -> int:
    """How many of the programs a fresh process finds; its results are right and it says nothing."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=os.environ | {"XDG_CACHE_HOME": str(home), "JAX_PLATFORMS": "cpu", "TESTED_CPU": cpu},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    *values, n_found = done.stdout.split()
    assert values == ["513.0", "128.0"]
    return int(n_found)


@pytest.mark.parametrize("damage", ["empty", "a bit changed", "another's"])
def test_a_damaged_program_is_compiled_anew_and_replaced(tmp_path: Path, damage: str) -> None:
    assert run(tmp_path) == 0
    n_programs = run(tmp_path)
    folder = tmp_path / NAME / FOLDER
    (one,) = (path for path in folder.iterdir() if "multiplied" in path.name)
    (other,) = (path for path in folder.iterdir() if "added" in path.name)
    DAMAGES[damage](one, other)
    assert run(tmp_path) == n_programs - 1
    assert run(tmp_path) == n_programs


def test_programs_of_another_cpu_are_not_found(tmp_path: Path) -> None:
    assert run(tmp_path) == 0
    assert run(tmp_path, "another CPU") == 0
    assert run(tmp_path, "another CPU") > 0
