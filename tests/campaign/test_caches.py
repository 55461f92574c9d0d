"""Cache entries that are damaged or another user's are not used: the numbers stay the same."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dynbatch.harness.compiler import object_code
from dynbatch.harness.machine import caches
from dynbatch.harness.machine.caches import NAME
from tests.support.odd_files import DAMAGES
from tests.support.sandbox import Kept, Sandbox, assert_ended, campaign, run_module, sandbox

LIMIT_S = 300.0  # without any cache, everything is compiled again
NOBODY = 65534
WORK = (
    *("model=tree_lstm", "dataset=sst_synthetic", "hidden_size=4", "batch_size=2", "force=true"),
    *("timing.min_seconds=0", "timing.n_mini_batches=1", "timing.min_passes=1"),
)
SYSTEMS = ("vertex", "torch_compiled", "jax_scan")
# By name: a system, and the pattern of the cache entries that its runs leave in a sandbox.
KINDS = {
    "answers_of_source": ("vertex", f"cache/{NAME}/{caches.FOLDER}/*"),
    "object_code": ("vertex", f"cache/{NAME}/{object_code.FOLDER}/*"),
    "reference_results": ("vertex", "work/results/.reference/*"),
    "graphs_of_torch": ("torch_compiled", f"cache/{NAME}/inductor/*"),
    "programs_of_jax": ("jax_scan", f"cache/{NAME}/jax/*"),
}
DONE_TO_ONE: dict[str, Callable[[Path], object]] = {
    **{
        name: lambda path, name=name: DAMAGES[name](path, path)
        for name in ("empty", "cut off", "a bit changed", "a folder")
    },
    "a dangling link": lambda path: (path.unlink(), path.symlink_to(path / "nowhere")),
    "unreadable": lambda path: path.chmod(0),
}


class Warm(NamedTuple):
    """Directory that two runs of a system left, and the numbers of the second run."""

    folder: Path
    numbers: dict[str, Any]


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Warm]]:
    @cache
    def make(system: str) -> Warm:
        folder = tmp_path_factory.mktemp(system)
        box = Sandbox(folder / "work", folder / "cache")
        for _ in range(2):
            assert_ended(box.run(command(box, system), LIMIT_S), (0, 3))
        record = read_record(box)
        if record["status"] != "ok":
            pytest.skip(f"{system}: {record['reason']}")
        return Warm(folder, select_numbers(record))

    return make


def command(box: Sandbox, system: str) -> list[str]:
    return run_module(
        "dynbatch.harness.commands.bench", *WORK, f"system={system}", f"results_dir={box.results}"
    )


def read_record(box: Sandbox) -> dict[str, Any]:
    (content,) = Kept.of(box.results).complete.values()
    record: dict[str, Any] = json.loads(content)
    return record


def select_numbers(record: dict[str, Any]) -> dict[str, Any]:
    """Return the fingerprint without the losses of passes, whose number depends on timing."""
    return {key: value for key, value in record["fingerprint"].items() if key != "pass_losses"}


@contextmanager
def copied(folder: Path) -> Iterator[Sandbox]:
    """Copy a warm cache, without records."""
    with sandbox() as box:
        for name in ("cache", "work"):
            shutil.copytree(
                folder / name, box.cache.parent / name, symlinks=True, dirs_exist_ok=True
            )
        shutil.rmtree(box.results / "raw")
        yield box


def assert_same_numbers(box: Sandbox, system: str, warm: Warm) -> None:
    """Run a system with the damaged cache and compare its numbers."""
    assert_ended(box.run(command(box, system), LIMIT_S), (0,))
    record = read_record(box)
    assert record["status"] == "ok", record["reason"]
    assert select_numbers(record) == warm.numbers


@campaign
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", [*DONE_TO_ONE, "all empty"])
def test_damaged_entries(warm: Callable[[str], Warm], kind: str, damage: str) -> None:
    system, pattern = KINDS[kind]
    with copied(warm(system).folder) as box:
        spoil(box.cache.parent, pattern, damage)
        assert_same_numbers(box, system, warm(system))


def spoil(folder: Path, pattern: str, damage: str) -> None:
    """Damage one random entry or all entries."""
    entries = sorted(path for path in folder.glob(pattern) if path.is_file())
    assert entries, f"nothing is at {pattern}: it is kept elsewhere"
    if damage == "all empty":
        for path in entries:
            path.write_bytes(b"")
    else:
        DONE_TO_ONE[damage](random.Random(f"{pattern} {damage}").choice(entries))


@campaign
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_cache_of_another_user(warm: Callable[[str], Warm], system: str) -> None:
    with copied(warm(system).folder) as box:
        for path in [box.cache, *box.cache.rglob("*")]:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
            if path.is_dir():
                path.chmod(0o777)
        before = {path: path.stat().st_mtime_ns for path in box.cache.rglob("*")}
        assert_same_numbers(box, system, warm(system))
        assert {path: path.stat().st_mtime_ns for path in box.cache.rglob("*")} == before
