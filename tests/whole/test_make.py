"""Commands of make: installation, offline packages, the campaign, and the steps on a GPU."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

from dynbatch.harness.values.paths import CONF_DIR, ROOT
from tests.support.shards import select_shard

CARRIED = ("gpu", "raw", "tables", "figures", "artifacts", "measured")


def make(*words: str) -> str:
    command = ["make", "--dry-run", "--always-make", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def assert_in_order(text: str, *parts: str) -> None:
    at = [text.find(part) for part in parts]
    assert at == sorted(at), text
    assert at[0] >= 0, text


FAKE_PYTHON = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
*freeze*) printf 'torch==2.13.0\nnvidia-cublas==13.0\nnvidia-ml-py==13.0\ntriton==3.7\ntqdm==4\n' ;;
*uninstall*) xargs echo ;;
esac
"""


def test_an_index_of_pytorch_replaces_its_build(tmp_path: Path) -> None:
    """It installs again unless the last installation was from the same index."""
    python, log = tmp_path / "bin" / "python", tmp_path / "log"
    python.parent.mkdir()
    python.write_text(FAKE_PYTHON.format(log=log))
    python.chmod(0o755)

    def install(*words: str, n_at_once: int = 1) -> list[str]:
        log.write_text("")
        command = ["make", "install", f"VENV={tmp_path}", *words]
        running = [subprocess.Popen(command, cwd=ROOT) for _ in range(n_at_once)]
        assert [process.wait() for process in running] == [0] * n_at_once
        return log.read_text().splitlines()

    first, *_ = once = install(n_at_once=3)
    assert "install --use-pep517 -c constraints.txt" in first
    assert len({*once}) == len(once), "of three, one installs and the others wait"
    assert install() == []
    freeze, uninstall, torch, others, size, _ = install("TORCH_INDEX=cpu")
    assert freeze.endswith("freeze")
    assert uninstall.endswith("uninstall --yes torch nvidia-cublas triton")
    assert torch.endswith("--index-url https://download.pytorch.org/whl/cpu torch")
    assert f"install --use-pep517 -c {tmp_path}/constraints.txt" in others
    assert size.endswith("torch_device")
    pinned = (tmp_path / "constraints.txt").read_text()
    assert "torchfold==" in pinned
    assert "torch==" not in pinned
    assert install("TORCH_INDEX=cpu") == []
    assert any("https://mirror/whl" in line for line in install("TORCH_INDEX=https://mirror/whl"))


def test_versions_that_cannot_be_listed_replace_no_others(tmp_path: Path) -> None:
    pins = tmp_path / "constraints.txt"
    pins.write_text("torch==2.13.0\n")
    command = ["make", "-f", str(ROOT / "Makefile"), "constraints"]  # without an environment
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode
    assert pins.read_text() == "torch==2.13.0\n"


def test_an_install_by_hashes_takes_nothing_else() -> None:
    printed = make("install", "HASHES=a.txt")
    build, others = "install --require-hashes -r a.txt.build", "--no-build-isolation -r a.txt"
    assert_in_order(printed, build, others, "--no-deps --no-build-isolation --editable .")
    printed = make("hashes", "HASHES=a.txt")
    assert printed.count("--generate-hashes") == 2
    assert "--extra torch,gpu," in printed
    assert "say HASHES=FILE" in make("hashes")


def test_an_install_without_a_network_asks_for_none() -> None:
    printed = make("install", "OFFLINE=wheelhouse")
    installs = [line for line in printed.splitlines() if "-m pip" in line and " install " in line]
    assert len(installs) == 2
    assert all("--no-index" in line for line in installs)
    printed = make("wheelhouse", "BOX_PYTHON=3.12", "BOX_PACKAGES=box.txt")
    assert_in_order(printed, "cat box.txt constraints.txt", "--python-version 3.12", "-delete")


def test_the_quick_part_names_tests_that_exist() -> None:
    (command,) = (line for line in make("test-quick").splitlines() if "-m pytest" in line)
    paths = [word.split("::")[0] for word in command.split() if word.startswith("tests/")]
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_step_of_a_gpu_is_kept_with_its_exit_code(tmp_path: Path) -> None:
    """A step with work left is repeated by the next run; a failed step is not."""
    done = tmp_path / "headlines.done"
    step = ["make", f"GPU={tmp_path}", str(done)]

    def run(command: str) -> None:
        subprocess.run([*step, f"BIN={command}"], cwd=ROOT, capture_output=True, check=True)

    bin_ = tmp_path / "bin"
    bin_.mkdir()
    snakemake = bin_ / "snakemake"
    for script in ("echo 3 are left for the next run", "exit 3", "exit 0"):
        snakemake.write_text(f"#!/bin/sh\n{script}\n")
        snakemake.chmod(0o755)
        run(str(bin_))
        assert done.exists() == ("left" not in script)
    assert done.read_text() == "3\n"
    sources = (path.read_text() for path in (ROOT / "harness" / "planning").glob("*.py"))
    assert any("left for the next run" in source for source in sources)


def test_steps_of_a_gpu() -> None:
    """A GPU is searched for races before anything is measured on it."""
    printed = make("gpu")
    steps = ["doctor", "races", *(f"tests_{k}" for k in range(1, 7)), "ceilings", "headlines"]
    steps += ["cavs", "claims", "profile"]
    assert re.findall(r"> results/gpu/(\w+)\.txt", printed) == steps
    assert all(f"results/gpu/{step}.done" in printed for step in steps)
    assert all(f" {folder}" in printed for folder in CARRIED)
    printed = make("results/gpu/tests_3.done", "results/gpu/cavs.done")
    assert "--shard 3/6 " in printed
    assert all(f"draw_{path.stem} " in printed for path in CONF_DIR.glob("experiment/cavs_*.yaml"))


def test_parts_of_the_tests_are_all_of_them() -> None:
    items = [SimpleNamespace(nodeid=f"tests/test_{k}.py::test") for k in range(99)]

    parts = [select_shard(items, f"{k}/3") for k in (1, 2, 3)]
    assert all(parts)
    found = [item.nodeid for part in parts for item in part]
    assert sorted(found) == sorted(item.nodeid for item in items)
