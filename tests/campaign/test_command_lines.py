"""Valid and invalid command lines, drawn from the types of the configuration.

They must end with exit code 0 or 1, one line per error, no traceback and no long wait. Most lines
run in this process and stop before measuring. Errors that planning does not detect run as commands.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hydra.core.global_hydra import GlobalHydra
from hypothesis import given
from hypothesis import strategies as st

from dynbatch.harness.commands import bench
from tests.support.in_time import in_time
from tests.support.sandbox import (
    TINY,
    Ended,
    assert_ended,
    assert_one_line,
    campaign,
    examples,
    run_module,
    sandbox,
)
from tests.support.wrong_words import plain_keys, wrong_overrides

# Expected outcomes in alphabetical order; the last one of several counts.
RIGHT, UNCLEAR, WRONG = "right", "unclear", "wrong"  # unclear: any one line will do
LIMIT_S, PROCESS_LIMIT_S = 20, 60.0
BASE = ("system=null", *TINY)
WORDS = {  # valid values of keys with few choices
    "mode": ("train", "infer"),
    "device": ("cpu",),
    "split": ("train",),
    "order": ("shuffled", "file", "length"),
    "on_invalid_data": ("fail", "record"),
    "learning.variant": ("released", "intended"),
    "learning.fallback": ("last", "agenda", "sufficient"),
}
RIGHT_VALUES = {bool: ("true", "false"), int: ("2",), float: ("0.5", "2", "1e-2")}
ODD_VALUES = (
    *("x" * 5000, "a b", "'a\\nb'", "ünï", "-", "..", "a/b/c", "$HOME", "'a=b'", "null"),
    *("0", "1e300", str(10**30), "true", "1e-320", "inf", "0x", "1 2"),
)


class Line(NamedTuple):
    """Arguments of `bench` and their expected outcome."""

    arguments: Sequence[str]
    expected: str


WRONG_TYPED = st.integers(0, 10**6).flatmap(lambda n: st.sampled_from(wrong_overrides(n, 7)))
KEYS = sorted(plain_keys().items(), key=str)


@st.composite
def typed(draw: st.DrawFn) -> tuple[str, str]:
    """Draw a KEY=VALUE and its expected outcome."""
    expected = draw(st.sampled_from((RIGHT, UNCLEAR, WRONG)))
    if expected == WRONG:
        return draw(WRONG_TYPED), WRONG
    key, kind = draw(st.sampled_from(KEYS))
    right = WORDS.get(key, RIGHT_VALUES.get(kind, ()))
    if expected == RIGHT and right:
        return f"{key}={draw(st.sampled_from(right))}", RIGHT
    return f"{key}={draw(st.sampled_from(ODD_VALUES))}", UNCLEAR


def build_line(typed: Sequence[tuple[str, str]]) -> Line:
    return Line([*BASE, *(text for text, _ in typed)], max(e for _, e in typed))


LINES = st.lists(typed(), min_size=1, max_size=2).map(build_line)


def take(line: Line) -> Ended:
    """Run a command in this process, up to the start of the measurement."""
    out, err = io.StringIO(), io.StringIO()
    with (
        TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        patch.object(bench, "measure_all", lambda *_: 0),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        in_time(LIMIT_S),
    ):
        code: Any
        try:
            code = bench.main(line.arguments)
        except SystemExit as stop:
            code = stop.code
        finally:
            GlobalHydra.instance().clear()
    return Ended(code or 0, out.getvalue(), err.getvalue())


def run(line: Line) -> Ended:
    """Run a command as a process."""
    with sandbox() as box:
        return box.run(run_module(bench.__name__, *line.arguments), PROCESS_LIMIT_S)


def judge(line: Line, ended: Ended) -> None:
    """Fail unless a command ended as expected."""
    assert_ended(ended, (0, 1))
    if ended.returncode == 1:
        assert_one_line(ended, "bench")
        assert line.expected != RIGHT, f"right, but refused: {ended.last_line}"
    else:
        assert line.expected != WRONG, "wrong, but accepted"


@examples(60, 500)
@given(line=LINES)
def test_lines(line: Line) -> None:
    ended = take(line)
    # Some errors are detected only by the process that would measure.
    is_late = ended.returncode == 0 and line.expected == WRONG
    judge(line, run(line) if is_late else ended)


@campaign
@examples(1, 30)
@given(line=LINES)
def test_lines_of_processes(line: Line) -> None:
    judge(line, run(line))


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (Ended(0, "", ""), WRONG),
        (Ended(1, "", "bench: seed=x\n"), RIGHT),
        (Ended(1, "", ""), WRONG),
    ],
)
def test_a_wrong_end_is_seen(ended: Ended, expected: str) -> None:
    with pytest.raises(AssertionError):
        judge(Line([], expected), ended)


def test_a_line_is_taken_up_to_where_it_would_measure() -> None:
    assert take(Line(BASE, RIGHT)) == Ended(0, "", "")
