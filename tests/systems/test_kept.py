"""Compiled code of torch.compile and XLA is reused by other processes on the same CPU type."""

from __future__ import annotations

from importlib import util
from pathlib import Path

import pytest

from dynbatch.harness.machine.caches import NAME
from dynbatch.systems.on_torch.compiled import _find_compiler
from tests.support.processes import end_python

SAME = "one CPU"
FIRST = """
import os
from pathlib import Path
from dynbatch.harness.machine import facts
facts.hash_cpu = lambda: os.environ["TESTED_CPU"]
"""
TORCH = """
import shutil, torch
from torch._dynamo.utils import counters
from dynbatch.systems.on_torch.compiled import keep_graphs
def is_unpacked():
    return any(path.is_file() for path in Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*"))
with keep_graphs("a test"):
    own = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    print(own, is_unpacked())
    assert not torch.compile(lambda x: torch.tanh(x) * 2)(torch.zeros(4)).any()
print(counters["inductor"]["fxgraph_cache_hit"])
shutil.rmtree(own)
own.mkdir()
os.environ["TESTED_CPU"] = "another"
with keep_graphs("a test"):
    print(is_unpacked())
"""
JAX = """
import jax, jax.numpy as jnp
from dynbatch.harness.machine.caches import NAME
from dynbatch.systems.on_jax.scan import keep_programs
from tests.support.odd_files import DAMAGES
keep_programs()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
found = []
jax.monitoring.register_event_listener(lambda name, **_: found.append(name))
def multiplied(x):
    return (x @ x).sum() + 1
def added(x):
    return (x + x).sum()
def count_found():
    jax.clear_caches()
    found.clear()
    x = jnp.ones((8, 8))
    assert (float(jax.jit(multiplied)(x)), float(jax.jit(added)(x))) == (513.0, 128.0)
    return found.count("/jax/compilation_cache/cache_hits")
counts = [count_found(), count_found()]
folder = Path(os.environ["XDG_CACHE_HOME"], NAME, "jax")
for damage in ("empty", "a bit changed", "another's") if counts[0] else ():
    (one,) = (path for path in folder.iterdir() if "multiplied" in path.name)
    (other,) = (path for path in folder.iterdir() if "added" in path.name)
    DAMAGES[damage](one, other)
    counts.append(count_found())
print(*counts, count_found())
"""

pytestmark = pytest.mark.slow
NEEDS_COMPILER = pytest.mark.skipif(
    _find_compiler() is None, reason="torch.compile needs a C++ compiler"
)
NEEDS_JAX = pytest.mark.skipif(util.find_spec("jax") is None, reason="JAX is not installed")


def run(program: str, home: Path, cpu: str = SAME) -> list[str]:
    """Return the words that a new process prints; it must print nothing on stderr."""
    own = {"XDG_CACHE_HOME": str(home), "JAX_PLATFORMS": "cpu", "TESTED_CPU": cpu}
    quick = {"TORCHINDUCTOR_VEC_ISA_OK": "1", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
    done = end_python("-c", FIRST + program, **own, **quick)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@NEEDS_COMPILER
def test_graphs_are_found_again_on_the_same_cpu(tmp_path: Path) -> None:
    """The process removes its own directory when it ends."""
    for are_unpacked, n_found in ((False, 0), (True, 1)):
        folder, *found = run(TORCH, tmp_path)
        assert found == [str(are_unpacked), str(n_found), "False"]
        assert not Path(folder).exists()
        assert len(list((tmp_path / NAME / "inductor").iterdir())) == 1


@NEEDS_JAX
def test_programs_are_found_again_on_the_same_cpu_and_damaged_ones_replaced(tmp_path: Path) -> None:
    none, n, again = map(int, run(JAX, tmp_path))
    assert none == 0 < n == again
    assert list(map(int, run(JAX, tmp_path))) == [n, n, n - 1, n - 1, n - 1, n]
    assert list(map(int, run(JAX, tmp_path, "another"))) == [0, n, n]
