"""Machine code: cached by everything that it depends on, recompiled after changes, by target."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import inspect
import linecache
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import llvmlite
import pytest
from llvmlite import binding as llvm

import dynbatch.harness.compiler
from dynbatch.harness.compiler import compiled as entry_points
from dynbatch.harness.compiler import object_code, registry
from dynbatch.harness.compiler.compiled import write_module
from dynbatch.harness.compiler.object_code import (
    FOLDER,
    Target,
    compile_ir,
    get_host_target,
    load_ir,
)
from dynbatch.harness.compiler.registry import load_generated
from dynbatch.harness.errors import CompileError
from dynbatch.harness.machine.source_code import hash_code
from dynbatch.harness.values.paths import ROOT
from tests.support.processes import run_python
from tests.support.refusals import expect_refusal

IR = """
define i64 @answer() {{
  ret i64 {number}
}}
"""


@pytest.fixture
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Provide a separate cache for the test; return a function that lists its files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return lambda: sorted(one for one in tmp_path.rglob("*") if one.parent.name == FOLDER)


@pytest.fixture
def compiled_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the texts that are compiled from now on."""
    texts: list[str] = []

    def noted(text: str, target: Target, **options: bool) -> bytes:
        texts.append(text)
        return compile_ir(text, target, **options)

    monkeypatch.setattr(object_code, "compile_ir", noted)
    return texts


def answer(number: int) -> int:
    loaded = load_ir(IR.format(number=number))
    return ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.find_address("answer"))()


def test_compiled_code_is_cached_and_reused(entries: Any, compiled_texts: list[str]) -> None:
    assert [answer(5), answer(5), answer(6), answer(5)] == [5, 5, 6, 5]
    assert len(compiled_texts) == len(entries()) == 2


@pytest.mark.parametrize("change", ["cpu", "features", "triple", "llvmlite", "LLVM"])
def test_code_for_another_cpu_or_of_another_llvm_is_not_taken(
    entries: Any, compiled_texts: list[str], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    answer(5)
    own = get_host_target()
    if change == "llvmlite":
        monkeypatch.setattr(llvmlite, "__version__", "0.0.1")
    elif change == "LLVM":
        monkeypatch.setattr(llvm, "llvm_version_info", (1, 0, 0))
    else:
        odd = {"cpu": "x86-64", "features": own.features + ",-avx512f", "triple": own.triple + "-"}
        other = replace(own, **{change: odd[change]})
        monkeypatch.setattr(object_code, "get_host_target", lambda: other)
    assert answer(5) == 5
    assert len(compiled_texts) == len(entries()) == 2


def test_damaged_entry_is_compiled_again(entries: Any, compiled_texts: list[str]) -> None:
    """All kinds of damage are in tests/machine/test_caches.py."""
    answer(5)
    (path,) = entries()
    path.write_bytes(path.read_bytes()[:-1])
    compiled_texts.clear()
    assert answer(5) == 5
    assert compiled_texts == [IR.format(number=5)]
    assert answer(5) == 5
    assert len(compiled_texts) == 1


def test_without_a_cache_everything_is_compiled(
    tmp_path: Path, compiled_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [answer(5), answer(5)] == [5, 5]
    assert len(compiled_texts) == 2


NUMBERS = """
import os
from dynbatch.harness.compiler.registry import helper

FACTOR = int(os.environ["FACTOR"])

@helper
def add(x):
    return x * FACTOR + 5

@helper
def negate(x):
    return -x

scaled = add if FACTOR < 3 else negate
"""
USES = """
import sys
from dynbatch.harness.compiler import compiled as entry_points, object_code
from dynbatch.harness.compiler.compiled import compiled
from made.numbers import scaled

@compiled
def run(x: int) -> int:
    return scaled(x) + 1

made = []
compile_ir = object_code.compile_ir
object_code.compile_ir = lambda *rest, **more: made.append(1) or compile_ir(*rest, **more)
"""
CALL = "from made.uses import made, run; print(run(10), len(made))"
EDITED = """
import linecache
from pathlib import Path
import made.later, made.numbers
from made.uses import run
{first}
path = Path(made.numbers.__file__)
path.write_text(path.read_text().replace("+ 5", "+ 6"))
try:
    {then}
except Exception as error:
    print(type(error).__name__, error)
"""
LATER = """
from dynbatch.harness.compiler.compiled import compiled
from made.numbers import scaled

@compiled
def run_later(x: int) -> int:
    return scaled(x)
"""


@pytest.fixture
def run_made(tmp_path: Path) -> Any:
    """Return a function that runs a text in a new process, with a package `made` and its own cache.

    It is given the text, that of made.numbers, FACTOR of the environment, and that of made.uses.
    """
    package = tmp_path / "made"
    package.mkdir()
    for name, content in {"__init__": "", "later": LATER}.items():
        (package / f"{name}.py").write_text(content)

    def run(text: str, numbers: str, factor: int, uses: str = USES) -> str:
        (package / "numbers.py").write_text(numbers)
        (package / "uses.py").write_text(uses)
        around = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        own = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "FACTOR": str(factor)}
        return run_python("-c", text, **around, **own)

    return run


def test_a_changed_helper_or_constant_of_another_module_is_noticed(run_made: Any) -> None:
    assert run_made(CALL, NUMBERS, 1) == "16 1\n"
    assert run_made(CALL, NUMBERS, 2) == "26 1\n"  # the source text is the same
    assert run_made(CALL, NUMBERS, 3) == "-9 1\n"  # another function under the same name
    assert run_made(CALL, NUMBERS.replace("+ 5", "+ 6"), 1) == "17 1\n"
    assert run_made(CALL, NUMBERS, 1) == "16 0\n"


def test_cache_key_is_independent_of_other_imports(run_made: Any) -> None:
    """Imported modules become attributes of their package, which must not change the hash."""
    by_package = USES.replace(
        "made.numbers import", "made import numbers\nfrom made.numbers import"
    )
    assert run_made(CALL, NUMBERS, 1, uses=by_package) == "16 1\n"
    assert run_made(f"import made.later; {CALL}", NUMBERS, 1, uses=by_package) == "16 0\n"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        # As a message about an error does.
        ("linecache.getlines(made.numbers.__file__)", "run(10)"),
        ("assert run(10) == 16", "made.later.run_later(10)"),
    ],
)
def test_nothing_is_kept_of_a_file_that_is_edited_meanwhile(
    run_made: Any, first: str, then: str
) -> None:
    """The old text is in memory, but a hash would be that of the new one."""
    error = run_made(EDITED.format(first=first, then=then), NUMBERS, 1)
    assert error.startswith("CompileError ")
    assert "made/numbers.py was edited after this process read it" in error


HEAD = """
import os
import numpy as np
from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper

def read():
    return int(os.environ["FACTOR"])

def make(n):
    @helper
    def held(x, by={default}):
        return x * n + by
    return held

def leave_unassigned():
    @helper
    def held(x):
        return x * n
    return held
    n = 1

class Held:
    N = {attribute}

held = {held}

@compiled
def run(x: int) -> object:
    return {used}
"""
# Values that a module computes when it is imported, and a use of each.
COMPUTED = {
    "class": {"attribute": "read()", "used": "x + Held.N"},
    "closure": {"held": "make(read())", "used": "held(x)"},
    "default": {"held": "make(1)", "default": "read()", "used": "held(x)"},
    "unassigned": {"held": "leave_unassigned()", "used": "x + 1"},
    "builtin": {"held": "(max if read() == 1 else min)", "used": "held(x, 1)"},
    "dtype": {"held": "np.dtype([bool, float][read() - 1])", "used": "np.ones(x, held)[0] + 1"},
}
EACH = """
import importlib
for name in {names}:
    run = importlib.import_module("made." + name).run
    print(name, str(run(10)) == str(run.function(10)))
"""


def test_values_computed_at_import_are_part_of_the_key(run_made: Any, tmp_path: Path) -> None:
    plain = {"default": "0", "attribute": "0", "held": "None"}
    for name, parts in COMPUTED.items():
        (tmp_path / "made" / f"of_{name}.py").write_text(HEAD.format(**(plain | parts)))
    names = [f"of_{name}" for name in COMPUTED]
    for factor in (1, 2):
        found = run_made(EACH.format(names=names), NUMBERS, factor)
        assert found == "".join(f"{name} True\n" for name in names)


def test_changes_in_another_top_level_module_are_noticed(run_made: Any, tmp_path: Path) -> None:
    common = NUMBERS.replace('int(os.environ["FACTOR"])', "2")
    uses = USES.replace("made.numbers import", "common import") + "import common\n"
    uses = uses.replace("scaled(x) + 1", "scaled(x) + common.FACTOR")
    for factor, found in ((2, "27 1\n"), (1, "16 1\n"), (1, "16 0\n")):
        (tmp_path / "common.py").write_text(common.replace("= 2", f"= {factor}"))
        assert run_made(CALL, NUMBERS, 1, uses=uses) == found


@pytest.mark.usefixtures("entries")
def test_a_cell_of_a_notebook_is_compiled_again_after_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells = types.ModuleType("cells")
    monkeypatch.setitem(sys.modules, "cells", cells)
    for number in (5, 6):
        text, file = f"@compiled\ndef run(x: int) -> int:\n    return x + {number}\n", f"<{number}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        vars(cells)["compiled"] = entry_points.compiled
        exec(compile(text, file, "exec"), vars(cells))
        assert vars(cells)["run"](1) == 1 + number


TEXT = """\
from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.programs.compiling.runtime import *

@compiled
def run(a: float) -> int:
    return to_integer(a) * 3
"""


def test_a_generated_text_is_one_module_that_messages_find() -> None:
    run: Any = load_generated(TEXT, "run")
    assert load_generated(TEXT, "run") is run
    assert run(5.0) == 15
    other: Any = load_generated(TEXT.replace("3", "4"), "run")
    assert (other.__module__ != run.__module__, other(5.0)) == (True, 20)
    with pytest.raises(OverflowError, match="more than 62 bits"):
        run(2.0**62)
    assert inspect.getsource(run.function) == TEXT[TEXT.index("@compiled") :]
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            load_generated("1 / 0", "run")


@pytest.mark.parametrize("name", ["runtime", "registry", "elementwise"])
def test_edited_dependency_changes_the_generated_module_name(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = load_generated(TEXT, "run").__module__

    def edited(path: Path) -> bytes:
        return hash_code(path) + (b"edited" if path.stem == name else b"")

    def forget_stamps() -> None:
        registry.hash_modules.cache_clear()
        registry._STAMPS.clear()

    monkeypatch.setattr(registry, "hash_code", edited)
    forget_stamps()
    after = load_generated(TEXT, "run").__module__
    forget_stamps()
    assert (before != after) == (name != "elementwise")


def test_another_process_finds_machine_code_of_a_text(run_made: Any) -> None:
    load = (
        "from dynbatch.harness.compiler.registry import load_generated as load;"
        f" f = load({TEXT!r}, 'run')"
    )
    without = "from dynbatch.harness.compiler import compiled; compiled.write_module = None"
    assert run_made(f"{load}; print(f(5))", NUMBERS, 1) == "15\n"
    assert run_made(f"{without}; {load}; print(f(5))", NUMBERS, 1) == "15\n"


def test_code_that_is_not_well_formed_is_refused_in_one_line() -> None:
    for text in ("define i64 @f() { ret i32 0 }", IR.format(number="%1"), "no code"):
        with expect_refusal("LLVM rejects the generated code: ", kind=CompileError):
            load_ir(text)


def test_unknown_processor_gives_one_line() -> None:
    with expect_refusal("does not support abacus-", ": ", kind=CompileError):
        compile_ir(IR.format(number=1), Target("abacus-unknown", "", ""))


def test_unloadable_llvm_gives_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError("libllvmlite.so: no such file")

    monkeypatch.setattr(llvm, "initialize_native_target", refuse)
    with pytest.raises(CompileError, match=r"llvmlite [\d.]+ cannot be loaded \(libllvmlite.so"):
        get_host_target.__wrapped__()


def test_missing_llvmlite_gives_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompileError, match=r"llvmlite is not installed; pip install"):
        importlib.reload(dynbatch.harness.compiler)


@pytest.mark.parametrize(
    "name", ["dynbatch.harness.policies.levels", "dynbatch.harness.engine.cpu_kernels.context"]
)
def test_functions_compile_for_another_cpu(name: str) -> None:
    """The functions need instructions that this machine does not have."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    importlib.import_module(name)
    text = str(write_module(entry_points._BY_MODULE[name]))
    code = compile_ir(text, Target("aarch64-unknown-linux-gnu", "generic", ""))
    assert code[:4] == b"\x7fELF"
    assert int.from_bytes(code[18:20], "little") == 183  # EM_AARCH64
