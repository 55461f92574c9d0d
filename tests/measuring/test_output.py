"""A process's last words: an exception of several lines keeps its type and what it is of."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from harness.measuring.output import BoundedLog, Output, last_line, say

TRACEBACK = (
    'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    f()\n    ^^^\n'
)
PYDANTIC = (
    "pydantic_core.ValidationError: 1 validation error for Record\nin_force.threads\n"
    "  Input should be a valid string [type=string_type, input_value=3, input_type=int]\n"
    "    For further information visit https://errors.pydantic.dev/2/v/string_type\n"
)


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("", ""),
        ("one\n\ntwo  words\n\n", "two words"),
        (f"{TRACEBACK}ValueError: bad\n", "ValueError: bad"),
        (f"warning\n{TRACEBACK}ValueError: a fault\nover two lines\n",
         "ValueError: a fault over two lines"),
        (f"{TRACEBACK}KeyError: 1\n\nDuring handling, another:\n\n{TRACEBACK}ValueError: bad\n",
         "ValueError: bad"),
        (f"{TRACEBACK}", "^^^"),
    ],
)  # fmt: skip
def test_last_words(tmp_path: Path, printed: str, words: str) -> None:
    log = tmp_path / "log"
    log.write_text(printed)
    assert last_line(log) == words


def test_the_field_of_a_validation_error_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(TRACEBACK + PYDANTIC)
    said = last_line(log)
    assert said.startswith("pydantic_core.ValidationError: 1 validation error for Record in_force.")
    assert "Input should be a valid string" in said


def test_much_is_cut_in_the_middle(tmp_path: Path) -> None:
    """What came last may be another end than the exception's, such as memory that ran out."""
    log = tmp_path / "log"
    log.write_text(f"{TRACEBACK}ValueError: first\n{'noise ' * 500}\nstd::bad_alloc\n")
    said = last_line(log)
    assert said.startswith("ValueError: first noise")
    assert said.endswith("std::bad_alloc")
    assert len(said) <= 500


def test_what_a_child_says_is_passed_on_line_by_line_while_it_is_at_work(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    say("schedules\na mini-batch")
    said = capfd.readouterr().out.encode()
    heard: list[str] = []
    reading, writing = os.pipe()
    with (tmp_path / "log").open("wb", buffering=0) as file:
        output = Output(reading, BoundedLog(file), heard.append)
        for chunk in (b"noise\nsays now: no\n", said[:3], said[3:], b"x" * 100_000, said, said):
            os.write(writing, chunk[:60_000])
            output.take(time.monotonic() + 0.01)
        assert heard == ["schedules a mini-batch"] * 2, "what follows noise is a line's end"
        os.close(writing)
        output.take_rest()
    os.close(reading)
    assert (tmp_path / "log").read_bytes().count(said) == 3
