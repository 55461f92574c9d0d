"""DyNet's builds: the one of each device, messages of missing ones, and CUDA's libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dynbatch.harness.contracts.system import System
from dynbatch.harness.machine.facts import has_cuda_device, read_cpu_model
from dynbatch.harness.values.paths import ROOT
from dynbatch.systems.on_dynet import autobatch, build, segments
from dynbatch.systems.on_dynet.cpp.adapter import Adapter as CppAdapter
from tests.support.processes import end_python
from tests.support.run_adapter import small_settings

TREE_LSTM: Any = SimpleNamespace(name="tree_lstm", max_children=None)
MISSING = {
    "cpu": "DyNet's source build is not installed; run make dynet-native",
    "cuda": "DyNet's build for CUDA is not installed; run make dynet-cuda",
}
SCRIPT = ROOT / "scripts" / "build_dynet_native.sh"
HAS_CUDA_BUILD = build.find_source_build(device="cuda") is not None


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Empty directories of builds, by device."""
    for device in build.SOURCE_BUILDS:
        (tmp_path / device).mkdir()
        monkeypatch.setitem(build.SOURCE_BUILDS, device, tmp_path / device)
    return build.SOURCE_BUILDS


@pytest.mark.parametrize("device", MISSING)
def test_missing_build_gives_one_line(folders: dict[str, Path], device: str) -> None:
    folder, how = folders[device], f"run make {build.TARGETS[device]}"
    assert build.explain_missing_build(device) == MISSING[device]
    (folder / "build.json").write_text("{}")
    missing = f"DyNet's programs in C++ are not built; {how}"
    assert build.explain_missing_build(device) == missing
    (folder / build.PROGRAMS).touch()
    (folder / build.PRODUCT_SIGNATURE).touch()
    facts = folder / build.FACTS
    facts.write_text(json.dumps({"sources_sha256": "of other sources"}))
    other = f"DyNet's programs in C++ do not match their sources; {how}"
    assert build.explain_missing_build(device) == other
    facts.write_text(json.dumps({"sources_sha256": build.hash_sources()}))
    assert build.explain_missing_build(device) is None


@pytest.mark.parametrize(
    ("chosen", "linked"),
    [({}, "mkl" if "Intel" in read_cpu_model() else "openblas"), ({"BLAS": "mkl"}, "mkl"),
     ({"BLAS": "openblas"}, "openblas"), ({"DEVICE": "cuda"}, "eigen")],
)  # fmt: skip
def test_blas_is_chosen_by_processor(tmp_path: Path, chosen: dict[str, str], linked: str) -> None:
    script = tmp_path / "build.sh"
    script.write_text(SCRIPT.read_text().replace('main "$@"', 'echo "$blas"'))
    assert run_script(script, chosen).stdout == f"{linked}\n"


@pytest.mark.parametrize(
    ("blas", "problem"),
    [("atlas", "BLAS=atlas: expected openblas, mkl or eigen"), ("mkl", "got /bin/false")],
)
def test_unknown_blas_is_refused(blas: str, problem: str) -> None:
    done = run_script(SCRIPT, {"BLAS": blas, "PYTHON": "/bin/false"})
    assert done.returncode == 1
    assert problem in done.stderr


def test_a_missing_compiler_of_cuda_is_named(tmp_path: Path) -> None:
    """The script runs its search for nvcc alone, where there is none."""
    text = SCRIPT.read_text().replace('main "$@"', "[[ a == b ]] || prepare_cuda")
    text = text.replace("command -v nvcc", "false").replace("/usr/local/cuda*", str(tmp_path))
    script = tmp_path / "build.sh"
    script.write_text(text)
    done = run_script(script, {"DEVICE": "cuda", "NVCC": ""})
    assert done.returncode == 1
    assert "nvcc not found; install the CUDA 13 toolkit or set NVCC" in done.stderr


def run_script(script: Path, chosen: dict[str, str]) -> subprocess.CompletedProcess[str]:
    rest = {key: value for key, value in os.environ.items() if key not in ("BLAS", "DEVICE")}
    return subprocess.run(
        ["bash", script], capture_output=True, text=True, check=False, env=rest | chosen
    )


def test_the_wheel_is_for_the_cpu_without_profile(folders: dict[str, Path]) -> None:
    reason = autobatch.Adapter.skip(TREE_LSTM, small_settings(device="cuda", build="wheel"))
    assert reason == "DyNet's wheel is for the CPU only; set build=source"
    reason = autobatch.Adapter.skip(TREE_LSTM, small_settings(build="wheel", profile=True))
    assert reason == "profile=true needs DyNet's source build; set build=source"


@pytest.mark.parametrize("adapter", [autobatch.Adapter, CppAdapter])
def test_cuda_and_timed_copies_need_a_source_build_of_their_own(
    folders: dict[str, Path], adapter: type[System]
) -> None:
    assert adapter.skip(TREE_LSTM, small_settings(profile=True)) == MISSING["cpu"]
    (folders["cpu"] / "build.json").write_text("{}")
    assert adapter.skip(TREE_LSTM, small_settings(device="cuda")) == MISSING["cuda"]
    (folders["cuda"] / "build.json").write_text("{}")
    reason = adapter.skip(TREE_LSTM, small_settings(device="cuda", profile=True))
    assert reason == "profile=true times DyNet's copies on a CPU only, got cuda; set device=cpu"


def test_a_build_is_only_found_for_its_device(folders: dict[str, Path]) -> None:
    (folders["cuda"] / "build.json").write_text("{}")
    assert build.find_source_build(device="cuda") == folders["cuda"]
    assert build.find_source_build("wheel", "cuda") is None
    assert build.find_source_build(device="cpu") is None


CONFIG = "def set(**settings): chosen.update(settings)\nchosen = {}\n"


@pytest.mark.parametrize(("device", "n_gpus"), [("cpu", 0), ("cuda", 1)])
def test_dynet_is_loaded_from_the_build_of_the_device(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, device: str, n_gpus: int
) -> None:
    for folder in folders.values():
        (folder / "build.json").write_text("{}")
        (folder / "dynet_config.py").write_text(CONFIG)
        (folder / "dynet.py").touch()
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("dynet", "dynet_config", "dynbatch.systems.on_dynet.runtime"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    options = autobatch.DynetOptions(autobatch="depth")
    runtime = autobatch._import_dynet(small_settings(device=device), options, {})
    config = sys.modules["dynet_config"]
    for name in ("dynet", "dynet_config", "dynbatch.systems.on_dynet.runtime"):
        monkeypatch.delitem(sys.modules, name)
    assert Path(runtime.dy.__file__).parent == folders[device]
    assert (config.chosen["requested_gpus"], config.chosen["autobatch"]) == (n_gpus, 2)


def test_libraries_are_those_of_the_build_then_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked, package = tmp_path / "linked", tmp_path / "site-packages/nvidia/cu13/lib"
    for folder in (linked, package):
        folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(package.parents[2])])
    facts = {"cuda_libraries": str(linked)}
    assert segments.find_library("libcurand.so.10", facts) == "libcurand.so.10"
    for folder in (package, linked):
        (folder / "libcurand.so.10").touch()
        assert segments.find_library("libcurand.so.10", facts) == str(folder / "libcurand.so.10")


def test_missing_libraries_give_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "build.json").write_text("{}")
    monkeypatch.setattr(segments, "LIBRARIES", ("libnothing.so.13",))
    reason = segments.explain_missing_device(tmp_path)
    assert reason.startswith("DyNet's build for CUDA finds no CUDA device: libnothing.so.13: ")


@pytest.mark.parametrize(("before", "after", "peak"), [(5, 12, 7), (None, None, None)])
def test_memory_is_that_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: Any, after: Any, peak: int | None
) -> None:
    """Systems of a block share a GPU, so what is free on it depends on all of them."""
    (tmp_path / "build.json").write_text("{}")
    runtime = SimpleNamespace(cudaFree=lambda _: 0, cudaGetErrorString=SimpleNamespace())
    monkeypatch.setattr(segments.ctypes, "CDLL", lambda _: runtime)
    readings = iter((before, after))
    monkeypatch.setattr(segments, "measure_own_gpu_bytes", lambda: next(readings))
    assert segments.CudaDevice(tmp_path).measure_peak_bytes() == peak


@pytest.mark.dynet
@pytest.mark.skipif(not HAS_CUDA_BUILD, reason=MISSING["cuda"])
@pytest.mark.skipif(has_cuda_device(), reason="what happens without a GPU")
def test_the_build_for_cuda_loads_until_it_asks_for_a_device() -> None:
    folder = build.SOURCE_BUILDS["cuda"]
    reason = segments.explain_missing_device(folder)
    assert reason.startswith("DyNet's build for CUDA finds no CUDA device: cudaFree: ")
    program = "import dynet_config; dynet_config.set(mem=4, requested_gpus=1); import dynet"
    done = end_python("-c", program, PYTHONPATH=str(folder), LD_BIND_NOW="1")
    assert done.returncode != 0
    assert "[dynet] initializing CUDA\nCUDA failure in cudaGetDeviceCount" in done.stderr
