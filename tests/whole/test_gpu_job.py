"""The GPU job: steps in order, each done once, stopped in time and gone on with."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from itertools import count
from pathlib import Path

import pytest

from harness.values.places import ROOT
from scripts import gpu_ceilings, gpu_job
from scripts.gpu_job import Done, Step, artefacts_of, pack, steps, words, work

PASSES = "open('ran.txt', 'a').write('{name}')"


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where steps write what they did; the folder that they run in."""
    monkeypatch.setattr(gpu_job, "ROOT", tmp_path)
    return tmp_path / "ran.txt"


def step(name: str, code: str = PASSES, *, limit_s: float = 100.0, goes_on: bool = False) -> Step:
    command = (sys.executable, "-c", code.replace("{name}", name))
    return Step(name, command, limit_s, goes_on)


def test_every_step_is_done_once(ran: Path, tmp_path: Path) -> None:
    every = [step("a"), step("b")]
    assert work(every, tmp_path / "gpu", 200.0)["b"].is_over
    work(every, tmp_path / "gpu", 200.0)
    assert ran.read_text() == "ab"


def test_nothing_is_begun_that_cannot_end(ran: Path, tmp_path: Path) -> None:
    assert work([step("a")], tmp_path / "gpu", gpu_job.LEAST_S - 1) == {}
    assert not ran.exists()


def test_what_failed_is_done_again_only_where_asked(ran: Path, tmp_path: Path) -> None:
    every = [step("a", f"{PASSES}; raise SystemExit(3)"), step("b")]
    found = work(every, tmp_path / "gpu", 200.0)
    assert (found["a"].status, found["b"].status) == (3, 0)
    work(every, tmp_path / "gpu", 200.0)
    assert ran.read_text() == "ab"
    work(every, tmp_path / "gpu", 200.0, again=True)
    assert ran.read_text() == "aba"


def test_what_is_left_is_gone_on_with(ran: Path, tmp_path: Path) -> None:
    """Until it says that nothing is left, in the same call or in the next."""
    says = "import pathlib; n = len(pathlib.Path('ran.txt').read_text())"
    code = f"f = open('ran.txt', 'a'); f.write('{{name}}'); f.close(); {says}"
    code += f"; print('3 {gpu_job.LEFT}' if n < 3 else '')"
    found = work([step("a", code, goes_on=True)], tmp_path / "gpu", 1000.0)
    assert ran.read_text() == "aaa"
    assert found["a"].is_over


def test_a_step_is_stopped_in_time(
    ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_job, "LEAST_S", 0.3)
    slow = step("a", "import time; print('begun', flush=True); time.sleep(60)", limit_s=0.5)
    ticks = count(0.0, 0.25)
    found = work([slow], tmp_path / "gpu", 1.0, now=lambda: next(ticks))
    assert found["a"].status == 124
    assert not found["a"].is_over
    assert "begun" in (tmp_path / "gpu" / "a.txt").read_text()
    assert words(found["a"]).startswith("goes on")


def test_all_that_is_to_be_carried_back_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "tests.txt").write_text("passed")
    with tarfile.open(pack(tmp_path)) as file:
        assert "gpu/tests.txt" in file.getnames()


def test_the_steps_name_what_there_is() -> None:
    every = steps(sys.executable, "snakemake")
    assert [one.name for one in every][:2] == ["doctor", "tests_1"]
    assert {"draw_cavs_fig8a", "draw_cavs_table1_tree_lstm"} <= set(artefacts_of("cavs"))
    assert all(one.limit_s <= 540 for one in every)


def test_parts_of_the_tests_are_all_of_them() -> None:
    """Each test is in one part, which the steps name."""
    chosen = ("--collect-only", "-q", "-p", "tests.support.shards", "tests/engine/test_products.py")

    def collected(shard: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", *chosen, f"--shard={shard}"]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return [line for line in said.stdout.splitlines() if "::" in line]

    parts = collected("1/2") + collected("2/2")
    assert sorted(parts) == sorted(collected("1/1"))
    assert parts
    named = [
        word for one in steps("python", "snakemake") for word in one.command if "shard=" in word
    ]
    n = len(named)
    assert named == [f"--shard={k}/{n}" for k in range(1, n + 1)]


def test_words_of_a_step() -> None:
    assert words(None) == "not begun"
    assert words(Done(0, 61.2, True)) == "over after 61 s"
    assert words(Done(2, 5.0, True)) == "over after 5 s, exit status 2"


def test_ceilings_of_a_device_without_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_ceilings, "PRODUCTS", ((2, 3, 4),))
    found = gpu_ceilings.ceilings("cpu", copied_bytes=2**16)
    assert json.loads(json.dumps(found)) == found
    assert found["launch_us"] is found["barrier_us"] is None
    products = found["product_gflop_per_s"]
    assert isinstance(products, dict)
    assert list(products) == ["2x3x4"]
    assert products["2x3x4"] > 0
