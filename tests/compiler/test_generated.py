"""Text that becomes a module: once in a process, and anew where what it imports has changed."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.compiler import registry
from harness.compiler.object_code import FOLDER
from harness.compiler.registry import load_generated
from harness.machine.caches import cache_folder
from harness.machine.source_code import code_sha256

TEXT = """\
from harness.compiler.compiled import compiled
from harness.programs.compiling.runtime import *

@compiled
def run(a: float) -> int:
    return whole(a) * 3
"""


def test_a_text_is_one_module() -> None:
    run: Any = load_generated(TEXT, "run")
    assert load_generated(TEXT, "run") is run
    assert run(5.0) == 15
    other: Any = load_generated(TEXT.replace("3", "4"), "run")
    assert other.__module__ != run.__module__
    assert other(5.0) == 20


def test_what_it_raises_is_an_error_of_its_own() -> None:
    with pytest.raises(OverflowError, match="more than 62 bits"):
        load_generated(TEXT, "run")(2.0**62)


def test_messages_and_compilers_find_the_text() -> None:
    run: Any = load_generated(TEXT, "run")
    assert inspect.getsource(run.function) == TEXT[TEXT.index("@compiled") :]


def forget_stamps() -> None:
    registry.stamp_of.cache_clear()
    registry._STAMPS.clear()


@pytest.mark.parametrize("name", ["runtime", "registry", "elementwise"])
def test_an_edit_of_what_it_is_made_of_gives_it_another_name(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = load_generated(TEXT, "run").__module__

    def edited(path: Path) -> bytes:
        return code_sha256(path) + (b"edited" if path.stem == name else b"")

    monkeypatch.setattr(registry, "code_sha256", edited)
    forget_stamps()
    after = load_generated(TEXT, "run").__module__
    forget_stamps()
    assert (before != after) == (name != "elementwise")


def test_a_text_that_fails_leaves_no_module() -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            load_generated("1 / 0", "run")


def test_another_process_finds_its_machine_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = (
        "import sys\n"
        "from harness.compiler import compiled\n"
        "from harness.compiler.registry import load_generated\n"
        "if len(sys.argv) > 1:\n"
        "    compiled.write_module = None\n"
        f"print(load_generated({TEXT!r}, 'run')(5))\n"
    )
    for arguments in ([], ["is kept"]):
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert done.stdout == "15\n"
    folder = cache_folder(FOLDER)
    assert folder is not None
    assert len(list(folder.iterdir())) == 1
