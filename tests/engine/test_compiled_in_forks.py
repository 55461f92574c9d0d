"""Loops of a model are compiled by several processes, and found by the one that runs them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.machine import forks, generated, native

SOURCE = """
from harness.machine.native import native

@native("void(int64)", error_model="numpy")
def loop(n):
    if n == {n}:
        raise ValueError("it is {n}")
"""
SOURCES = [SOURCE.format(n=n) for n in (1, 22, 333)]


@pytest.fixture
def compiled_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What this process compiles, with an empty cache and two CPUs."""
    found: list[str] = []
    compile_it = native._compiled

    def seen(function: Any, *more: Any) -> Any:
        found.append(function.__module__)
        return compile_it(function, *more)

    monkeypatch.setattr(native, "_compiled", seen)
    monkeypatch.setattr(forks, "usable_cpus", lambda: (0, 1))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return found


def check(functions: Sequence[Any]) -> None:
    """Each raises for its own number alone."""
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    room = [ctypes.create_string_buffer(64) for _ in range(2)]
    for k, function in enumerate(functions):
        codes = [kind(function.address)(*map(ctypes.addressof, room), n) for n in (1, 22, 333)]
        assert [code != native.DONE for code in codes] == [i == k for i in range(3)]


def test_a_fork_compiles_its_share_which_is_read_from_the_disk(compiled_here: list[str]) -> None:
    check(generated.load_all_generated(SOURCES, "loop"))
    assert len(compiled_here) == 1
    check(generated.load_all_generated(SOURCES, "loop"))
    assert len(compiled_here) == 1


def test_no_process_is_started_for_what_is_kept(
    compiled_here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(generated.load_all_generated(SOURCES, "loop"))
    asked: list[list[str]] = []
    monkeypatch.setattr(generated, "in_forks", lambda work, items, cost: asked.append([*items]))
    check(generated.load_all_generated(SOURCES, "loop"))
    assert asked == [[]]


def test_without_a_cache_all_is_compiled_here(
    compiled_here: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in the way").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "in the way"))
    check(generated.load_all_generated(SOURCES, "loop"))
    assert len({*compiled_here}) == 3


def test_equal_texts_are_one(compiled_here: list[str]) -> None:
    first, second = generated.load_all_generated([SOURCES[0]] * 2, "loop")
    assert first is second
    assert len(compiled_here) == 1
