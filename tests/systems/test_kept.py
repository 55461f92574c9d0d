"""What torch.compile and XLA compiled is found by other processes, of the same CPU alone."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

from harness.machine.caches import NAME
from harness.values.places import ROOT
from systems.on_torch.compiled import _compiler
from tests.support.odd_files import DAMAGES

FIRST = """
import os
from harness.machine import facts
facts.cpu_fingerprint = lambda: os.environ["TESTED_CPU"]
"""
TORCH = """
import torch
from torch._dynamo.utils import counters
from systems.on_torch.compiled import graphs_kept
with graphs_kept("a test"):
    found = torch.compile(lambda x: torch.tanh(x) * 2)(torch.zeros(4))
print(float(found.sum()), counters["inductor"]["fxgraph_cache_hit"])
print(os.environ["TORCHINDUCTOR_CACHE_DIR"])
"""
JAX = """
import jax, jax.numpy as jnp
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

pytestmark = pytest.mark.slow
NEEDS_COMPILER = pytest.mark.skipif(
    _compiler() is None, reason="torch.compile needs a C++ compiler"
)
NEEDS_JAX = pytest.mark.skipif(util.find_spec("jax") is None, reason="JAX is not installed")


def run(program: str, home: Path, cpu: str) -> tuple[list[str], str]:
    """Return the words that a fresh process prints, and what it says besides."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST + program],
        cwd=ROOT,
        env=os.environ | {"XDG_CACHE_HOME": str(home), "JAX_PLATFORMS": "cpu", "TESTED_CPU": cpu},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


def run_torch(home: Path, cpu: str = "one CPU") -> int:
    """Return how many graphs were found; the process has removed its own folder."""
    (value, n_found, folder), _ = run(TORCH, home, cpu)
    assert value == "0.0"
    assert not Path(folder).exists()
    return int(n_found)


def run_jax(home: Path, cpu: str = "one CPU") -> int:
    """Return how many programs were found; results are right and nothing is said."""
    (*values, n_found), said = run(JAX, home, cpu)
    assert (values, said) == (["513.0", "128.0"], "")
    return int(n_found)


@NEEDS_COMPILER
def test_graphs_are_found_again_on_the_same_cpu(tmp_path: Path) -> None:
    assert [run_torch(tmp_path) for _ in range(2)] == [0, 1]
    assert len(list((tmp_path / NAME / "inductor").iterdir())) == 1
    assert run_torch(tmp_path, "another CPU") == 0


@NEEDS_JAX
def test_damaged_programs_are_compiled_anew_and_replaced(tmp_path: Path) -> None:
    assert run_jax(tmp_path) == 0
    n_programs = run_jax(tmp_path)
    folder = tmp_path / NAME / "jax"
    (one,) = (path for path in folder.iterdir() if "multiplied" in path.name)
    (other,) = (path for path in folder.iterdir() if "added" in path.name)
    for damage in ("empty", "a bit changed", "another's"):
        DAMAGES[damage](one, other)
        assert run_jax(tmp_path) == n_programs - 1, damage
    assert run_jax(tmp_path) == n_programs


@NEEDS_JAX
def test_programs_of_another_cpu_are_not_found(tmp_path: Path) -> None:
    assert run_jax(tmp_path) == 0
    assert run_jax(tmp_path, "another CPU") == 0
    assert run_jax(tmp_path, "another CPU") > 0
