"""Command lines of the campaign: drawn from the configuration's types, and judged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from harness.trials.spec import Timing
from scripts.campaign_parts.case import Case, cases_of
from scripts.campaign_parts.classes import command_lines
from scripts.campaign_parts.classes.command_lines import judged
from scripts.campaign_parts.place import Ended
from scripts.campaign_parts.takes_lines import answer
from scripts.campaign_parts.typed_lines import (
    BASE,
    Key,
    keys,
    option_line,
    options,
    together,
    value_of,
    wrong_value,
)


def ended(code: int | None, stderr: str = "", stdout: str = "") -> Ended:
    return Ended(code, stdout, stderr, 1.0)


def test_every_key_of_the_schema_is_drawn() -> None:
    kinds = {key.name: key for key in keys()}
    assert {f"timing.{name}" for name in Timing.__dataclass_fields__} <= set(kinds)
    assert kinds["batch_size"].plain is int
    assert kinds["learning_rate"].plain is float
    assert (kinds["rounds"].plain, kinds["rounds"].takes_null) == (int, True)
    assert not kinds["seed"].takes_null
    assert not {"system", "system.name", "experiment"} & set(kinds)
    lines = [
        text
        for case in cases_of("command_lines", command_lines, 0, 1.0)
        for text in case.does["arguments"]
    ]
    drawn = {text.partition("=")[0] for text in lines}
    assert len(set(kinds) - drawn) < len(kinds) / 10, "500 lines come by nearly all keys"


@pytest.mark.parametrize("kind", [int, float, bool, int | None])
def test_values_are_right_or_wrong_by_their_type(kind: type) -> None:
    rng = random.Random(0)
    drawn = {value_of(Key("some", kind), rng) for _ in range(300)}
    assert {expected for _, expected in drawn} >= {"right", "wrong"}
    assert ("null", "wrong") not in drawn or kind != int | None
    right = [text for text, expected in drawn if expected == "right"]
    assert all(text in ("true", "false") or float(text) > 0 for text in right)


def test_an_infinite_time_is_wrong_but_a_limit_may_be() -> None:
    for name, expected in (("timing.min_seconds", "wrong"), ("limits.time_s", "either")):
        rng = random.Random(0)
        drawn = dict(value_of(Key(name, float), rng) for _ in range(300))
        assert drawn["inf"] == expected


def test_options_get_values_that_they_do_not_have() -> None:
    rng = random.Random(0)
    assert len(options()) > 100
    for one in options():
        assert str(one.value).lower() != wrong_value(one.value, rng).lower()
    for _ in range(50):
        line, expected = option_line(rng)
        assert expected == "wrong"
        assert {text.partition("=")[0] for text in line} >= {"system", "model", "dataset"}


def test_one_wrong_value_is_enough() -> None:
    assert together(["right", "wrong", "either"]) == "wrong"
    assert together(["right", "either"]) == "either"
    assert together([]) == "right"


@pytest.mark.parametrize(
    ("how", "expected", "verdict"),
    [
        (ended(0), "right", "ok"),
        (ended(0), "either", "ok"),
        (ended(0), "wrong", "accepted"),
        (ended(0, stdout="unsupported: torch is not installed"), "wrong", "not_judged"),
        (ended(1, "bench: seed=x is not allowed\n"), "wrong", "ok"),
        (ended(1, "[1/1] null  refused\nbench: seed=x is not allowed\n"), "wrong", "ok"),
        (ended(1, "bench: seed=x is not allowed\n"), "right", "other"),
        (ended(1, "bench: seed=x\nis not allowed\n"), "wrong", "other"),
        (ended(1, "seed=x is not allowed\n"), "wrong", "other"),
        (ended(1), "wrong", "other"),
        (ended(2, "bench: a fault of the harness\n"), "wrong", "other"),
        (ended(2, "Traceback (most recent call last):\nValueError: x\n"), "wrong", "traceback"),
        (ended(None), "right", "hang"),
    ],
)
def test_verdicts_on_a_command_line(how: Ended, expected: str, verdict: str) -> None:
    assert judged(how, "bench", expected).verdict == verdict


def ask(folder: Path, *arguments: str, command: str = "bench") -> dict[str, object]:
    question = {"command": command, "arguments": list(arguments), "folder": str(folder)}
    return answer(question)


def test_lines_are_taken_up_to_where_they_would_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ask(tmp_path, *BASE) == {"code": 0, "stdout": "", "stderr": ""}
    assert not list(tmp_path.glob("results/raw/*"))
    refused = ask(tmp_path, *BASE, "batch_size=abc")
    assert refused["code"] == 1
    assert str(refused["stderr"]).count("\n") == 1
    assert ask(tmp_path, "--nothing", command="bench-collect")["code"] == 1


def test_an_error_that_nobody_catches_is_a_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(
        answer.__globals__["COMMANDS"], "bench", lambda _: (_ for _ in ()).throw(ValueError("odd"))
    )
    found = ask(tmp_path)
    assert found["code"] == 2
    assert "ValueError: odd" in str(found["stderr"])


@pytest.mark.slow
def test_what_planning_cannot_see_is_asked_of_the_whole_command(tmp_path: Path) -> None:
    does = {"command": "bench", "expected": "wrong", "is_process": False}
    line = [*BASE, "split=nothing"]  # which is read where it measures
    with command_lines.runner(tmp_path) as run:
        (tmp_path / "case").mkdir()
        case = Case("command_lines", 0, 0, {**does, "arguments": line})
        assert run(case, tmp_path / "case").verdict == "ok"
