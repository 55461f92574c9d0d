"""Networks in C++: compiled once, again after a change, and equal for all libraries and threads.

All models are compared with the reference in test_systems_agree.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.contracts.model import Model, ModelSizes, draw_initial_weights
from dynbatch.harness.contracts.system import RunSettings
from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.systems.native import library
from dynbatch.systems.native.adapter import Adapter
from tests.support.instances import build, draw_trees, random_instances
from tests.support.refusals import expect_refusal
from tests.support.run_adapter import SIZES, UNEQUAL, assert_alike, found_by, small_settings

NEEDS_COMPILER = pytest.mark.skipif(
    library.find_cpp_compiler() is None, reason="no C++ compiler is installed"
)
Logged = Callable[[], list[str]]


@pytest.fixture
def compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Logged:
    """Use an empty cache and a compiler that logs; return a function that reads its log."""
    compiler, log = library.find_cpp_compiler(), tmp_path / "log"
    logging = tmp_path / "logging"
    logging.write_text(f'#!/bin/sh\necho "$@" >>{log}\nexec {compiler} "$@"\n', encoding="utf-8")
    logging.chmod(0o755)
    monkeypatch.setenv("CXX", str(logging))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda: [line for line in log.read_text().splitlines() if "-shared" in line]


def write_program(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "answer.cc").write_text(text, encoding="utf-8")
    return folder


def read_answer(content: bytes, path: Path) -> int:
    path.write_bytes(content)
    return int(ctypes.CDLL(str(path)).answer())


@NEEDS_COMPILER
def test_programs_are_compiled_once_and_again_after_damage_or_a_change(
    compilations: Logged, tmp_path: Path
) -> None:
    sources = write_program(tmp_path / "own", 'extern "C" int answer() { return 41; }\n')
    assert read_answer(library.build_library(sources), tmp_path / "first.so") == 41
    assert read_answer(library.build_library(sources), tmp_path / "again.so") == 41
    assert len(compilations()) == 1
    (entry,) = tmp_path.glob("cache/*/native/*.so")
    entry.write_bytes(entry.read_bytes()[:-1])
    assert read_answer(library.build_library(sources), tmp_path / "whole.so") == 41
    assert len(compilations()) == 2
    write_program(sources, 'extern "C" int answer() { return 42; }\n')
    assert read_answer(library.build_library(sources), tmp_path / "changed.so") == 42
    assert len(compilations()) == 3


@NEEDS_COMPILER
def test_an_error_of_the_compiler_is_one_line(compilations: Logged, tmp_path: Path) -> None:
    sources = write_program(tmp_path / "own", "int answer() { return missing; }\n")
    with expect_refusal("cannot compile", "answer.cc:1", kind=UnsupportedTrial):
        library.build_library(sources)
    assert len(compilations()) == 1


def test_a_library_that_cannot_be_loaded_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "build_library", lambda: b"not a library")
    with pytest.raises(UnsupportedTrial, match="cannot be loaded"):
        library.load_library.__wrapped__()


def test_a_missing_compiler_is_named_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/missing/g++")
    reason = Adapter.skip(build("tree_lstm", SIZES), small_settings())
    assert reason == (
        "no C++ compiler: expected one of /missing/g++, found none; install one (Debian: apt"
        " install g++), or set CXX"
    )
    with pytest.raises(UnsupportedTrial, match="no C\\+\\+ compiler"):
        library.build_library()


def test_models_and_devices_that_are_not_written_are_named() -> None:
    assert "has no model tree_gru" in str(Adapter.skip(build("tree_gru", SIZES), small_settings()))
    reason = Adapter.skip(build("tree_lstm", SIZES), small_settings(device="cuda"))
    assert reason == "networks in C++ run on a CPU only; set device=cpu"


def run_system(model: Model, instances: Sequence[Any], blas: str, threads: int) -> dict[str, Any]:
    system = Adapter(RunSettings("train", "cpu", threads, 4, 0.2, 0, options={"blas": blas}))
    system.prepare(model, draw_initial_weights(model, seed=0))
    return found_by(system, instances)


@NEEDS_COMPILER
@pytest.mark.parametrize(("blas", "threads"), [("openblas", 1), ("auto", 2), ("openblas", 2)])
@pytest.mark.parametrize("width", [6, 40])  # less than a vector of columns, and several
def test_libraries_and_threads_compute_the_same(blas: str, threads: int, width: int) -> None:
    sizes = ModelSizes(width, UNEQUAL.data, embedding_size=7)
    trees = draw_trees(sizes, (1, 9, 300, 300))  # many rows in a level, too
    lattices = random_instances("lattice", (1, 9, 30, 30), sizes, seed=3)
    for name, instances in (("tree_lstm", trees), ("lattice_lstm", lattices)):
        model = build(name, sizes)
        expected = run_system(model, instances, "auto", 1)
        assert_alike(run_system(model, instances, blas, threads), expected)
