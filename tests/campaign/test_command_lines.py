"""Valid and invalid command lines, drawn from the types of the configuration.

They must end with exit code 0 or 1, one line per error, no traceback and no long wait. Most lines
run in this process and stop before measuring. Options, which the measuring process checks, and
errors that planning does not detect run as commands.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra
from hypothesis import assume, given
from hypothesis import strategies as st

from dynbatch.harness.commands import bench, collect, data, schedule
from dynbatch.harness.values.paths import CONF_DIR
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
MODULES = {
    "bench": bench,
    "bench-schedule": schedule,
    "bench-collect": collect,
    "bench-data": data,
}
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
SHAPES = (
    *(("=5", WRONG), ("batch_size", WRONG), ("~batch_size", WRONG), ("+nothing=1", WRONG)),
    *(("batch_size=2=3", WRONG), ("'", WRONG), ("batch_size=[", WRONG), ("{", WRONG)),
    *(("--nothing", WRONG), ("--cfg=nothing", WRONG), ("system=nothing", WRONG)),
    *(("model=lattice_lstm", WRONG), ("nothing=1", WRONG), ("system.nothing=1", WRONG)),
    *(("++batch_size=2", RIGHT), ("experiment=null", UNCLEAR), ("hydra.run.dir=.", UNCLEAR)),
    *(("rounds=100000000000", UNCLEAR), ("batch_size=${seed}", UNCLEAR), ("system=", WRONG)),
    *(("seed=${nothing}", WRONG), ("~system", WRONG), ("system=null,reference", UNCLEAR)),
    *(("batch_size=range(1,3)", UNCLEAR), ("batch_size=choice(", WRONG), ("out=/dev/null", WRONG)),
    *(("experiment=nothing", WRONG), ("dataset=[sst,ptb]", WRONG), ("==", WRONG), ("", WRONG)),
    ("split=nothing", WRONG),  # only the measuring process reads it
)
SCHEDULE = (
    *(("policy=agenda", RIGHT), ("policy=agenda,depth", RIGHT), ("policy=agend", WRONG)),
    *(("policy=", WRONG), ("offset=1", RIGHT), ("offset=-1", WRONG), ("offset=x", WRONG)),
    *(("granularity=operatr", WRONG), ("granularity=operator", RIGHT)),
    *(("outputs=stag", WRONG), ("outputs=stage", RIGHT), ("n_following=nan", WRONG)),
    *(("n_following=1", RIGHT), ("nothing=1", WRONG), ("=5", WRONG), ("batch_size", WRONG)),
    *(("--draw=/dev/null", WRONG), ("--draw=x.txt", WRONG), ("--nothing", WRONG)),
    *(("learning.trials=0", UNCLEAR), ("batch_size=0", WRONG), ("out=x.txt", WRONG)),
    *(("out=/dev/null", WRONG), ("--json", RIGHT), ("save_policy=/dev/full", WRONG)),
)
COLLECT = (  # paths and flags without any records
    *("nothing", "--latest", "--out=", "--out=/dev/null", "--pack=p", "--unpack=u", "--pack"),
    *("--nothing", "x" * 5000, "", "--out=a/b.csv", "/dev/null", "/dev/zero", "-", "a\nb"),
)
DATA_NAMES = (("complete_trees", RIGHT), ("nothing", WRONG), ("", WRONG), ("x" * 5000, WRONG))
DATA_SPLITS = (("train", RIGHT), ("nothing", WRONG), ("", WRONG))
DATA = (
    *((["describe", n, "--split", s], max(e, f)) for n, e in DATA_NAMES for s, f in DATA_SPLITS),
    *((["list", "--data-root", root], UNCLEAR) for root in ("nowhere", "/dev/null", "x" * 5000)),
    *((line, WRONG) for line in (["nothing"], [], ["describe"], ["list", "--nothing"])),
)


class Line(NamedTuple):
    """Command with its arguments and its expected outcome."""

    command: str
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


def build_bench_line(typed: Sequence[tuple[str, str]]) -> Line:
    return Line("bench", [*BASE, *(text for text, _ in typed)], max(e for _, e in typed))


def build_schedule_line(typed: tuple[str, str]) -> Line:
    text, expected = typed
    base = ["model=tree_fc", "dataset=complete_trees", "dataset.options.n_leaves=4", "batch_size=2"]
    policy = [] if text.startswith("policy=") else ["policy=agenda"]
    return Line("bench-schedule", [*base, *policy, text], expected)


LINES = st.one_of(
    st.lists(typed(), min_size=1, max_size=2).map(build_bench_line),
    st.lists(typed(), min_size=1, max_size=2).map(build_bench_line),
    st.sampled_from(SHAPES).map(lambda shape: build_bench_line([shape])),
    st.sampled_from(SCHEDULE).map(build_schedule_line),
    st.lists(st.sampled_from(COLLECT), max_size=3).map(lambda a: Line("bench-collect", a, WRONG)),
    st.sampled_from(DATA).map(lambda drawn: Line("bench-data", *drawn)),
)


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
            code = MODULES[line.command].main(line.arguments)
        except SystemExit as stop:
            code = stop.code
        finally:
            GlobalHydra.instance().clear()
    return Ended(code or 0, out.getvalue(), err.getvalue())


def run(line: Line) -> Ended:
    """Run a command as a process."""
    with sandbox() as box:
        module = MODULES[line.command].__name__
        return box.run(run_module(module, *line.arguments), PROCESS_LIMIT_S)


def judge(line: Line, ended: Ended) -> None:
    """Fail unless a command ended as expected."""
    assert_ended(ended, (0, 1))
    if ended.returncode == 1:
        assert_one_line(ended, line.command)
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


class Option(NamedTuple):
    """Option in a file of conf/ with its value."""

    group: str
    name: str
    key: str
    value: bool | int | float | str

    @property
    def wrong_values(self) -> Sequence[str]:
        """Return values of another type, or misspelled words."""
        if isinstance(self.value, bool):
            return ("perhaps", "5", "None", "off_")
        if isinstance(self.value, int | float):
            return ("abc", "nan", "[1]", "-7")
        return (f"{self.value}x", self.value[:-1] or "x", "5", "none_")


def find_options() -> list[Option]:
    """Return every option of systems, models and generated data that is not a mapping."""
    found = []
    for group in ("system", "model", "dataset"):
        for path in sorted((CONF_DIR / group).glob("*.yaml")):
            options = yaml.safe_load(path.read_text(encoding="utf-8")).get("options") or {}
            is_file = group == "dataset" and "sha256" in options
            plain = bool | int | float | str
            found += [
                Option(group, path.stem, key, value)
                for key, value in options.items()
                if isinstance(value, plain) and not is_file
            ]
    return found


OPTIONS = find_options()
WORKLOADS = {  # a dataset for each model; the first workload suits most systems
    **{"tree_lstm": "sst_synthetic", "tree_fc": "complete_trees", "bilstm": "bilstm_synthetic"},
    **{"lattice_lstm": "lattice_synthetic", "var_lstm": "ptb_synthetic"},
    **{"bilstm_char": "wikiner_synthetic", "berxit": "xnli_synthetic"},
    **{"seq2seq": "iwslt15_synthetic", "parser": "ud_ewt_synthetic"},
}


@cache
def find_workload(group: str, name: str) -> Line | None:
    """Return a line in which a choice of a group is valid, or None if it is unsupported here."""
    tiny = ("hidden_size=4", "batch_size=2", *(text for text in TINY if "timing" in text))
    for model, dataset in WORKLOADS.items():
        chosen = {"system": "null", "model": model, "dataset": dataset, group: name}
        line = Line("bench", [*(f"{k}={v}" for k, v in chosen.items()), *tiny], RIGHT)
        if take(line).returncode == 0:
            ended = run(line)
            if ended.returncode == 0 and "unsupported" not in ended.stdout:
                return line
    return None


@campaign
@examples(1, 40)
@given(option=st.sampled_from(OPTIONS), data=st.data())
def test_options(option: Option, data: st.DataObject) -> None:
    right = find_workload(option.group, option.name)
    assume(right is not None)  # fails if hardly any choice runs here
    assert right is not None
    value = data.draw(st.sampled_from(option.wrong_values))
    typed = f"{option.group}.options.{option.key}={value}"
    wrong = Line("bench", [*right.arguments, typed], WRONG)
    judge(wrong, run(wrong))


def test_options_get_values_that_they_do_not_have() -> None:
    assert len(OPTIONS) > 100
    for option in OPTIONS:
        wrong = {value.lower() for value in option.wrong_values}
        assert str(option.value).lower() not in wrong


REFUSAL = "bench: seed=x is not allowed\n"


@pytest.mark.parametrize(
    ("ended", "expected", "is_right"),
    [
        (Ended(0, "", ""), RIGHT, True),
        (Ended(0, "", ""), UNCLEAR, True),
        (Ended(0, "", ""), WRONG, False),
        (Ended(1, "", REFUSAL), WRONG, True),
        (Ended(1, "", f"[1/1] null  refused\n{REFUSAL}"), WRONG, True),
        (Ended(1, "", REFUSAL), RIGHT, False),
        (Ended(1, "", ""), WRONG, False),
        (Ended(2, "", "bench: internal error\n"), WRONG, False),
        (Ended(2, "", "Traceback (most recent call last):\nValueError: x\n"), WRONG, False),
        (Ended(None, "", ""), RIGHT, False),
    ],
)
def test_a_wrong_end_is_seen(ended: Ended, expected: str, is_right: bool) -> None:
    line = Line("bench", [], expected)
    if is_right:
        return judge(line, ended)
    with pytest.raises(AssertionError):
        judge(line, ended)


def test_a_line_is_taken_up_to_where_it_would_measure() -> None:
    assert take(Line("bench", BASE, RIGHT)) == Ended(0, "", "")
    with (
        pytest.raises(ValueError, match="odd"),
        patch.object(data, "main", side_effect=ValueError("odd")),
    ):
        take(Line("bench-data", [], WRONG))
