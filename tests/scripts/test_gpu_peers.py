"""Environments of TensorFlow and JAX with CUDA, with a script in place of their Python."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dynbatch.harness.errors import BenchError
from dynbatch.harness.planning import kinds
from dynbatch.harness.planning.config import Composer
from scripts import gpu_peers
from tests.support.refusals import raising

PACKAGES = ("jax[cuda12]==1.2",)
FILES = {"jax": 2**20, "nvidia-cublas": 3 * 2**30}  # bytes
Fake = Callable[..., Path]


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Return a function that makes an environment, whose Python writes its arguments to a log."""
    chosen = [
        {"metadata": {"name": name}, "download_info": {"url": f"https://there/{name}.whl"}}
        for name in FILES
    ]
    itself = {"metadata": {"name": "itself"}, "download_info": {"url": "file:///here"}}
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"install": [*chosen, itself]}))

    def answer(request: Any, timeout: float) -> AbstractContextManager[Any]:
        assert request.get_method() == "HEAD"
        n_bytes = FILES[Path(request.full_url).stem]
        return nullcontext(SimpleNamespace(headers={"Content-Length": str(n_bytes)}))

    monkeypatch.setattr(gpu_peers.urllib.request, "urlopen", answer)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**40))

    def make(name: str = "jax", ends: str = "exit 0") -> Path:
        python = tmp_path / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        copy = f'[ "$1" = --report ] && cp {report} "$2"'
        python.write_text(
            f'#!/bin/sh\necho "$@" >> {tmp_path}/log\n'
            f"while [ $# -gt 0 ]; do {copy}; shift; done\n{ends}\n"
        )
        python.chmod(0o755)
        return tmp_path / name

    return make


def read_log(folder: Path) -> list[str]:
    log = folder.parent / "log"
    return log.read_text().splitlines() if log.exists() else []


def test_packages_and_their_size_are_printed_before_they_are_installed(
    peer: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = peer()
    logged: list[int] = []
    monkeypatch.setattr("builtins.print", lambda *_, **__: logged.append(len(read_log(folder))))
    gpu_peers.install_peer(folder, PACKAGES)
    monkeypatch.undo()
    dry, real = read_log(folder)
    assert logged == [1], "one line, after pip was asked and before it installs"
    assert "--dry-run" in dry
    assert "--dry-run" not in real
    assert all("jax[cuda12]==1.2" in line and "--editable" in line for line in (dry, real))
    gpu_peers.install_peer(folder, PACKAGES)
    assert len(read_log(folder)) == 2, "a complete environment is left as it is"


def test_a_server_that_tells_no_size_does_not_prevent_the_installation(
    peer: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = peer()
    monkeypatch.setattr(gpu_peers.urllib.request, "urlopen", raising(OSError("405")))
    gpu_peers.install_peer(folder, PACKAGES)
    assert "--editable" in read_log(folder)[-1]


def test_a_failure_is_one_line_and_leaves_the_environment_incomplete(
    peer: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = peer("tensorflow", ends="echo no such version >&2; exit 1")
    monkeypatch.setattr(gpu_peers, "GPU_PEERS", folder.parent)
    assert gpu_peers.main([]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "(no such version); their trials on CUDA are recorded as unsupported" in error
    assert not (folder / gpu_peers.DONE).exists()


def test_a_full_disk_is_noticed_before_the_download(
    peer: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = peer()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**30))
    with pytest.raises(BenchError, match=r"too little disk space.*got 1\.0; free some"):
        gpu_peers.install_peer(folder, PACKAGES)
    assert len(read_log(folder)) == 1


@pytest.mark.parametrize(
    ("device", "reason", "n_installed"),
    [(False, None, 0), (True, "an old driver", 0), (True, None, 2)],
)
def test_make_all_installs_them_only_for_a_gpu_that_can_be_used(
    monkeypatch: pytest.MonkeyPatch, device: bool, reason: str | None, n_installed: int
) -> None:
    installed: list[Path] = []
    monkeypatch.setattr(gpu_peers, "has_cuda_device", lambda: device)
    monkeypatch.setattr(gpu_peers, "explain_unusable_gpu", lambda: reason)
    monkeypatch.setattr(gpu_peers, "install_peer", lambda folder, _: installed.append(folder))
    assert gpu_peers.main([gpu_peers.IF_USABLE]) == 0
    assert len(installed) == n_installed
    installed.clear()
    assert gpu_peers.main([]) == 0
    assert len(installed) == 2


@pytest.mark.parametrize(("driver", "cuda"), [(None, 12), ((12, 8), 12), ((13, 0), 13)])
def test_packages_are_for_the_cuda_of_the_driver(
    monkeypatch: pytest.MonkeyPatch, driver: tuple[int, int] | None, cuda: int
) -> None:
    monkeypatch.setattr(gpu_peers, "describe_driver", lambda: driver and ("1.2", driver))
    packages = gpu_peers.list_packages(gpu_peers.find_newest_cuda())
    assert packages["jax"][0].startswith(f"jax[cuda{cuda}]==")
    assert packages["tensorflow"][0].startswith("tensorflow[and-cuda]==2.")


def test_trials_on_cuda_run_in_them(peer: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that is named has priority, and others need no environment."""
    folder = peer()
    monkeypatch.setattr(kinds, "GPU_PEERS", folder.parent)
    monkeypatch.delenv("BENCH_JAX_PYTHON", raising=False)
    trial = {"system": "jax_scan", "model": "tree_lstm", "dataset": "sst_synthetic"}

    def find(device: str = "cuda", **changes: str) -> str | None:
        return Composer().resolve_trial({**trial, "device": device, **changes}).python

    assert find() is None, "it is incomplete"
    gpu_peers.install_peer(folder, PACKAGES)
    assert find() == str(folder / "bin" / "python")
    assert find("cpu") is None
    assert find(**{"system.python": "/there/python"}) == "/there/python"
    assert find(system="torch_levels") is None
