"""Compilation by `make install`, so that first trials need not compile."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from dynbatch.harness.commands import compile_ahead
from dynbatch.harness.compiler import compiled, object_code
from dynbatch.harness.engine.cpu_kernels.vectors import load_matmul_kernels
from dynbatch.harness.errors import CompileError
from dynbatch.harness.values.paths import ROOT, is_part_of
from tests.support.refusals import raising


def test_every_module_with_compiled_functions_is_found() -> None:
    names = set(compile_ahead.find_modules(ROOT))
    assert "dynbatch.harness.policies.agenda" in names
    assert "dynbatch.harness.engine.cpu_kernels.row_kernels" in names
    registered = {name for name in compiled._BY_MODULE if is_part_of(name, ("harness", "systems"))}
    assert registered <= names


def test_a_module_of_a_user_is_found(tmp_path: Path) -> None:
    (tmp_path / "harness" / "policies").mkdir(parents=True)
    (tmp_path / "systems").mkdir()
    own = tmp_path / "harness" / "policies" / "own.py"
    own.write_text("@compiled\ndef batches(n: int) -> int: ...\n")
    (tmp_path / "systems" / "other.py").write_text("import dynbatch.harness\n")
    assert list(compile_ahead.find_modules(tmp_path)) == ["dynbatch.harness.policies.own"]


def test_module_of_a_missing_framework_is_reported_and_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_more.py").write_text("import no_such_framework\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    reason = compile_ahead.compile_module("needs_more")
    assert reason == "needs_more needs no_such_framework, which is not installed"


@pytest.mark.slow
def test_modules_compiled_ahead_are_not_recompiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    few = ["dynbatch.harness.policies.levels", "dynbatch.harness.engine.cpu_kernels.row_kernels"]
    monkeypatch.setattr(compile_ahead, "find_modules", lambda _: iter(few))
    load_matmul_kernels.cache_clear()
    assert compile_ahead.main() == 0
    assert "2 modules with compiled functions are cached" in capsys.readouterr().out
    monkeypatch.setattr(object_code, "compile_ir", raising(CompileError("compiled again")))
    compiled._load.cache_clear()
    load_matmul_kernels.cache_clear()
    for name in few:
        importlib.import_module(name)
        compiled.load_module(name)
    load_matmul_kernels()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    compiled._load.cache_clear()
    with pytest.raises(CompileError, match="compiled again"):
        compiled.load_module(few[0])
    compiled._load.cache_clear()
