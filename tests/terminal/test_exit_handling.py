"""Exit handling of commands: exit code, last line, and no output after it."""

from __future__ import annotations

import errno
import importlib
import io
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.terminal.exit_handling import STOPS, Stopped, raise_on_signals, run_command
from dynbatch.harness.values.paths import ROOT
from tests.support.processes import end_python
from tests.support.refusals import raising, read_refusal

NOTED = Stopped(signal.SIGTERM)
NOTED.add_note("3 of 5 records are saved")


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ConfigError("a=1\nis wrong"), 1, "bench: a=1 is wrong"),
        (OSError(errno.ENOSPC, "No space left", "/x/r0.json"), 1, "bench: /x/r0.json: No space"),
        (OSError("odd"), 1, "bench: odd; completed records are saved"),
        (KeyboardInterrupt(), 130, "bench: stopped by SIGINT; resume with: bench 'a b'"),
        (Stopped(signal.SIGHUP), 129, "bench: stopped by SIGHUP; resume with: bench 'a b'"),
        (NOTED, 143, "bench: stopped by SIGTERM; 3 of 5 records are saved; resume with: bench 'a"),
    ],
)
def test_stopping_error_or_signal_gives_one_line(
    error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("bench", raising(error), ["a b"]) == code
    assert read_refusal(capsys).startswith(words)


def test_internal_error_has_its_own_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("bench", raising(TypeError("odd"))) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1] == "bench: internal error; please report the traceback above"


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_that_comes_twice_interrupts_once(number: int) -> None:
    """The second signal does not interrupt the cleanup that the first one started."""
    before = signal.getsignal(number)
    undone = []

    def work() -> None:
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            undone.append(True)

    with pytest.raises(Stopped) as stop, raise_on_signals():
        work()
    assert stop.value.number == number
    assert undone
    assert signal.getsignal(number) is before


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with raise_on_signals():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL  # handled
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


# Program that prints more than a stream's buffer holds, then runs the rest.
PROGRAM = """
import sys
from pathlib import Path
from dynbatch.harness.terminal.exit_handling import run_command, print_message
def work():
    print_message("progress")
    file = open(sys.argv[1], "w")  # where a stream is closed, it must not get its number
    print("x" * int(sys.argv[2]))
    file.write("kept")
    file.close()
    return 0
sys.exit(run_command("bench", work))
"""
FULL = "bench: standard output cannot be written (No space left on device); completed records"
CLOSED = "bench: standard output cannot be written (Bad file descriptor); completed records are"
LITTLE, MUCH, UNBUFFERED = (10, ""), (100_000, ""), (10, "1")


@pytest.mark.parametrize(
    ("to", "code", "words", "n_letters", "unbuffered"),
    [
        *((">/dev/full", 1, FULL, *how) for how in (LITTLE, MUCH, UNBUFFERED)),
        *((">&-", 1, CLOSED, *how) for how in (LITTLE, MUCH, UNBUFFERED)),
        ("| true", 0, "", *LITTLE),
        ("2>&-", 0, None, *LITTLE),
        ("2>/dev/full", 0, None, *UNBUFFERED),
        ("<&- >&- 2>&-", 1, None, *LITTLE),
    ],
)
def test_output_that_nobody_takes(
    to: str, code: int, words: str | None, n_letters: int, unbuffered: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    script = f'set -o pipefail; {sys.executable} -c "$PROGRAM" {file} {n_letters} {to}'
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PROGRAM": PROGRAM}
    environment["PYTHONUNBUFFERED"] = unbuffered
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    if words is not None:
        progress, *lines = done.stderr.splitlines()
        assert progress == "progress"
        assert len(lines) == (1 if words else 0)
        assert "".join(lines).startswith(words)
    if n_letters == 10 and not unbuffered:
        assert file.read_text() == "kept"


def test_interrupt_during_import_gives_one_line() -> None:
    program = (
        "import dynbatch.harness.commands, os, signal, time; os.kill(os.getpid(), 2); time.sleep(9)"
    )
    done = end_python("-c", program)
    assert done.stderr == "interrupted before start; nothing was changed\n"
    assert done.returncode == -signal.SIGINT, "130, as shells tell it"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_unencodable_text_ends_no_command(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of files may also have bytes that are not UTF-8."""
    text = "1.50\N{DAGGER} \N{PLUS-MINUS SIGN}2 1\N{EN DASH}2 3\N{MULTIPLICATION SIGN} \udcff"
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)

    def work() -> int:
        print(text)
        raise ConfigError(text)

    assert run_command("bench", work) == 1
    for stream, start in ((out, ""), (err, "bench: ")):
        stream.flush()
        shown = stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
        assert shown.startswith(start + "1.50")
        assert shown.endswith("?\n")
    if encoding == "ascii":
        assert shown == "bench: 1.50+ +/-2 1-2 3x ?\n"


SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module, _, function = SCRIPTS[name].partition(":")
    assert getattr(importlib.import_module(module), function)(["--help"]) == 0
    assert name in capsys.readouterr().out
