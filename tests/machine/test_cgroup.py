"""Limits of containers, in trees of files as the kernel has them (cgroup v1, v2 and both)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.machine import cgroup, facts
from dynbatch.harness.machine.facts import count_usable_cpus, describe_machine, read_memory_bytes
from dynbatch.harness.machine.noise import check_noise, read_scheduling
from dynbatch.harness.planning.nodes import check_machine
from dynbatch.harness.terminal.command_line import describe_plan
from tests.support.measured import MakeSpec

Patch = pytest.MonkeyPatch
V2 = "0::/\n"
INSIDE = "0::/system.slice/docker-abc.scope\n"  # a path outside, of which only the root exists
V1 = "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n"
LIMITS: dict[str, tuple[str, Mapping[str, str], tuple[float | None, int, int | None]]] = {
    "nothing": ("", {}, (None, 0, None)),
    "version 2": (
        V2,
        {
            "cpu.max": "40000 100000",
            "cpu.stat": "usage_usec 5\nnr_periods 1112\nnr_throttled 1110",
            "memory.max": "2147483648",
        },
        (0.4, 1110, 2**31),
    ),
    "no limit": (V2, {"cpu.max": "max 100000", "memory.max": "max"}, (None, 0, None)),
    "a tighter one above": (
        "0::/a/b\n",
        {"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000", "a/b/memory.max": "max"},
        (1.5, 0, None),
    ),
    "a path of the outside": (INSIDE, {"cpu.max": "200000 100000"}, (2.0, 0, None)),
    "version 1": (
        V1,
        {
            "cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "40000",
            "cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000",
            "cpu,cpuacct/docker/abc/cpu.stat": "nr_periods 9\nnr_throttled 7\nthrottled_time 1",
            "memory/docker/abc/memory.limit_in_bytes": "1073741824",
        },
        (0.4, 7, 2**30),
    ),
    "version 1 without limits": (
        V1,
        {
            "cpu/docker/abc/cpu.cfs_quota_us": "-1",
            "cpu/docker/abc/cpu.cfs_period_us": "100000",
            "memory/memory.limit_in_bytes": "9223372036854771712",
        },
        (None, 0, None),
    ),
    "both": (
        "2:cpu:/\n0::/\n",
        {
            "cpu/cpu.cfs_quota_us": "300000",
            "cpu/cpu.cfs_period_us": "100000",
            "unified/cpu.max": "max 100000",
        },
        (3.0, 0, None),
    ),
}


def contain(tmp_path: Path, monkeypatch: Patch, own: str, files: Mapping[str, str]) -> Path:
    """Let this process be in a container with these files; return their root."""
    root = tmp_path / "cgroup"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(cgroup, "ROOT", root)
    monkeypatch.setattr(cgroup, "OWN", tmp_path / "own")
    return root


@pytest.mark.parametrize("name", LIMITS)
def test_limits_are_read(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    own, files, expected = LIMITS[name]
    contain(tmp_path, monkeypatch, own, files)
    quota = cgroup.read_cpu_quota()
    assert (quota, cgroup.count_throttled_periods(), cgroup.read_memory_limit()) == expected
    assert describe_machine().cpu_quota == quota
    total = psutil.virtual_memory().total
    assert read_memory_bytes() == min(total, expected[2] or total)


@pytest.mark.parametrize(("quota", "n_most"), [(0.4, 1), (1.0, 1), (1.5, 2), (99.0, 4)])
def test_a_quota_bounds_the_threads(
    quota: float, n_most: int, tmp_path: Path, monkeypatch: Patch, make_spec: MakeSpec
) -> None:
    contain(tmp_path, monkeypatch, V2, {"cpu.max": f"{quota * 1e5:.0f} 100000"})
    monkeypatch.setattr(facts, "list_usable_cpus", lambda: (0, 1, 2, 3))
    assert count_usable_cpus() == n_most
    check_machine(make_spec(threads=n_most))
    cpus = "CPU" if n_most == 1 else "CPUs"
    share = f"{n_most} usable {cpus} (CPU quota of {quota:.2g} cores); set 1"
    with pytest.raises(ConfigError, match=re.escape(share)):
        check_machine(make_spec(threads=n_most + 1))


@pytest.mark.parametrize(("quota", "is_told"), [(0.4, True), (1.0, True), (1.5, False)])
def test_bench_tells_of_a_quota_that_pauses_its_trials(
    quota: float, is_told: bool, tmp_path: Path, monkeypatch: Patch, make_spec: MakeSpec
) -> None:
    contain(tmp_path, monkeypatch, V2, {"cpu.max": f"{quota * 1e5:.0f} 100000"})
    planned: list[Any] = [SimpleNamespace(spec=make_spec())]
    told = f"the CPU quota of {quota:.2g} cores pauses trials"
    assert [told in line for line in describe_plan([], planned)] == [True] * is_told


def test_a_turn_with_a_pause_by_the_quota_is_disturbed(tmp_path: Path, monkeypatch: Patch) -> None:
    files = {"cpu.max": "40000 100000", "cpu.stat": "nr_periods 9\nnr_throttled 7"}
    root = contain(tmp_path, monkeypatch, V2, files)
    before = read_scheduling()
    assert read_scheduling().since(before).n_paused == 0
    (root / "cpu.stat").write_text("nr_periods 19\nnr_throttled 8\n")
    spent = read_scheduling().since(before)
    assert spent.n_paused == 1
    assert spent.is_disturbed(elapsed_s=1e9, n_threads=1)
    (finding,) = (f for f in check_noise(describe_machine(), 0.0) if f.name == "CPU quota")
    assert finding.value == "0.4 cores"
    assert finding.advice
