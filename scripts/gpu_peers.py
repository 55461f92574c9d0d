"""Install TensorFlow and JAX with CUDA in environments of their own, where their trials then run.

    python -m scripts.gpu_peers            # make gpu-peers
    python -m scripts.gpu_peers if-usable  # as part of make all: only if PyTorch can use a GPU here

Each framework brings a CUDA of its own, which may differ from PyTorch's. The packages to install
and their size are printed first. An environment that is complete is left as it is. Trials of both
frameworks with device=cuda run in these environments, unless system.python names another one
(SystemFile.find_python).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dynbatch.harness.errors import BenchError
from dynbatch.harness.machine.facts import describe_driver, has_cuda_device
from dynbatch.harness.machine.folders import make_temporary_folder
from dynbatch.harness.machine.process import find_last_words
from dynbatch.harness.machine.torch_device import explain_unusable_gpu
from dynbatch.harness.planning.kinds import GPU_PEERS
from dynbatch.harness.terminal.exit_handling import make_command
from dynbatch.harness.values.paths import ROOT

CONSTRAINTS = ROOT / "constraints.txt"
DONE = ".installed"  # in a complete environment: its packages (SystemFile.find_python)
IF_USABLE = "if-usable"
GIB = 2**30
UNPACKED = 3  # at most: size on the disk, wheels included, as a multiple of the wheels'
N_NAMED = 4  # largest packages that are named


@make_command("gpu-peers")
def main(typed: list[str]) -> int:
    """Install what is missing; return 0, or 1 if something cannot be installed."""
    if IF_USABLE in typed and (not has_cuda_device() or explain_unusable_gpu() is not None):
        return 0
    for name, packages in list_packages(find_newest_cuda()).items():
        install_peer(GPU_PEERS / name, packages)
    return 0


def find_newest_cuda() -> int:
    """Return the major version of the newest CUDA that the driver allows; 12 without a driver."""
    driver = describe_driver()
    return 12 if driver is None else driver[1][0]


def list_packages(cuda: int) -> dict[str, tuple[str, ...]]:
    """Return the packages of each environment, for CUDA 12 or 13, in the versions of the tests."""
    pinned = dict(line.split("==") for line in CONSTRAINTS.read_text().splitlines() if "==" in line)
    return {
        "tensorflow": (f"tensorflow[and-cuda]=={pinned['tensorflow-cpu']}",),
        "jax": (f"jax[cuda{min(max(cuda, 12), 13)}]=={pinned['jax']}",),
    }


def install_peer(folder: Path, packages: Sequence[str]) -> None:
    """Create an environment with packages and the benchmark; print first what is installed."""
    done = folder / DONE
    if done.exists() and done.read_text().split() == [*packages]:
        return
    python = folder / "bin" / "python"
    if not python.exists():
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    command += ["--constraint", str(CONSTRAINTS), *packages, "--editable", str(ROOT)]
    sizes = measure_downloads(command)
    n_bytes = sum(sizes.values())
    largest = sorted(sizes, key=lambda name: -sizes[name])[:N_NAMED]
    print(
        f"gpu-peers: {' '.join(packages)} into {folder}: {len(sizes)} packages,"
        f" {n_bytes / GIB:.1f} GiB to download ({', '.join(largest)} ...)",
        flush=True,
    )
    free = shutil.disk_usage(folder).free
    if free < UNPACKED * n_bytes:
        raise BenchError(
            f"too little disk space in {folder}: expected {UNPACKED * n_bytes / GIB:.1f} GiB, got"
            f" {free / GIB:.1f}; free some, or leave these systems out"
        )
    _run(command)
    done.write_text("\n".join(packages) + "\n")


def measure_downloads(command: Sequence[str]) -> dict[str, int]:
    """Return the bytes of each file that pip would download; 0 if its server reports none."""
    with make_temporary_folder() as folder:
        report = folder / "report.json"
        _run([*command, "--dry-run", "--report", str(report)])
        chosen = json.loads(report.read_text())["install"]
    return {
        package["metadata"]["name"]: _measure_download(package["download_info"])
        for package in chosen
    }


def _measure_download(info: Mapping[str, Any]) -> int:
    url = str(info["url"])
    if not url.startswith("http"):
        return 0  # the benchmark itself
    request = urllib.request.Request(url, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.headers.get("Content-Length", 0))
    except OSError:  # of a server that does not tell; pip may still download the file
        return 0


def _run(command: Sequence[str]) -> None:
    """Run a command; raise BenchError with its last line if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = find_last_words(done.stderr) or f"exit status {done.returncode}"
        raise BenchError(
            f"{' '.join(command[:4])} failed ({last}); their trials on CUDA are recorded as"
            " unsupported"
        )


if __name__ == "__main__":
    sys.exit(main())
