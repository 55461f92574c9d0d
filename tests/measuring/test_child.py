"""Child processes: running a module, refusals, exit, and last output."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dynbatch.harness.errors import BenchError, ConfigError, DataError, OutputError
from dynbatch.harness.measuring.processes import child
from dynbatch.harness.measuring.processes.child import REFUSED, refuse
from dynbatch.harness.measuring.processes.child_output import read_last_line, read_refusal
from tests.support.odd_files import fail_on_full_disk
from tests.support.processes import end_python
from tests.support.refusals import expect_refusal

Patch = pytest.MonkeyPatch

MODULE = """
import atexit
import gc

class Slow:
    def __del__(self):
        print("taken apart")

kept = Slow()

def main(words):
    assert gc.isenabled() and gc.get_freeze_count() > 0
    atexit.register(print, "registered")
    print("said", *words, end=" ")
    {end}
"""


def begun(folder: Path, end: str) -> subprocess.CompletedProcess[str]:
    (folder / "some_module.py").write_text(MODULE.format(end=end), encoding="utf-8")
    command = ["-m", child.__name__, str(os.getpid()), "some_module", "a", "b"]
    return end_python(*command, PYTHONPATH=str(folder))


@pytest.mark.parametrize("code", [0, 7])
def test_child_runs_exit_handlers_and_returns_exit_code(tmp_path: Path, code: int) -> None:
    done = begun(tmp_path, f"return {code}")
    assert done.returncode == code, done.stderr
    assert done.stdout == "said a b registered\n", "and nothing was taken apart"


def test_error_output_is_unchanged(tmp_path: Path) -> None:
    done = begun(tmp_path, "raise ValueError('why')")
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: why\n")


@pytest.mark.parametrize("kind", [ConfigError, DataError, OutputError])
def test_refusal_is_restored_only_for_matching_exit_code(
    tmp_path: Path, kind: type[BenchError]
) -> None:
    spec_path = tmp_path / "spec.json"
    assert read_refusal(spec_path, REFUSED) is None
    assert refuse(spec_path, kind("n_leaves=3 is\n no power of two")) == REFUSED
    error = read_refusal(spec_path, REFUSED)
    assert (type(error), str(error)) == (kind, "n_leaves=3 is no power of two")
    assert read_refusal(spec_path, -9) is None


@pytest.mark.parametrize("content", ["", '{"error": "Con', "[]", '{"error": "ConfigError"}'])
def test_truncated_output_gives_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "refusal.json").write_text(content)
    with expect_refusal("free disk space", kind=OutputError):
        read_refusal(tmp_path / "spec.json", REFUSED)
    assert read_refusal(tmp_path / "spec.json", -9) is None


def test_a_full_disk_leaves_one_that_is_cut_off(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "refusal.json").touch()
    monkeypatch.setattr(Path, "write_text", fail_on_full_disk)
    assert refuse(tmp_path / "spec.json", ConfigError("no")) == REFUSED
    with expect_refusal("free disk space", kind=OutputError):
        read_refusal(tmp_path / "spec.json", REFUSED)


TRACEBACK = (
    'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    f()\n    ^^^\n'
)
PYDANTIC = (
    "pydantic_core.ValidationError: 1 validation error for Record\neffective_options.threads\n"
    "  Input should be a valid string [type=string_type, input_value=3, input_type=int]\n"
    "    For further information visit https://errors.pydantic.dev/2/v/string_type\n"
)


@pytest.mark.parametrize(
    ("printed", "begins", "ends"),
    [
        ("", "", ""),
        ("one\n\ntwo  words\n\n", "two words", "two words"),
        (f"{TRACEBACK}ValueError: bad\n", "ValueError: bad", "bad"),
        (f"warning\n{TRACEBACK}ValueError: a fault\nover two lines\n",
         "ValueError: a fault over two lines", "lines"),
        (f"{TRACEBACK}KeyError: 1\n\nDuring handling, another:\n\n{TRACEBACK}ValueError: bad\n",
         "ValueError: bad", "bad"),
        (f"{TRACEBACK}", "^^^", "^^^"),
        (TRACEBACK + PYDANTIC,
         "pydantic_core.ValidationError: 1 validation error for Record"
         " effective_options.threads Input should be a valid string", ""),
        # Output after the exception may name another cause of the end, such as exhausted memory.
        (f"{TRACEBACK}ValueError: first\n{'noise ' * 500}\nstd::bad_alloc\n",
         "ValueError: first noise", "std::bad_alloc"),
    ],
)  # fmt: skip
def test_last_words(tmp_path: Path, printed: str, begins: str, ends: str) -> None:
    log = tmp_path / "log"
    log.write_text(printed)
    message = read_last_line(log)
    assert message.startswith(begins)
    assert message.endswith(ends)
    assert bool(message) == bool(printed)
    assert len(message) <= 500
