"""Output during trials and after them."""

from __future__ import annotations

import functools
import io
from typing import Any

import pytest
from rich.console import Console

from dynbatch.harness.records.record import build_trial
from dynbatch.harness.terminal.reporting import (
    Reporter,
    format_summary,
    format_trial,
    format_trials,
)
from tests.support.measured import MakeSpec, measure_alone
from tests.support.records import MakeRecord


@pytest.fixture
def a_record(make_record: MakeRecord) -> MakeRecord:
    """Return a function that builds records of six passes over two mini-batches."""
    passes_s = (0.300, 0.306, 0.294) * 2
    return functools.partial(make_record, passes_s=passes_s, n_instances=244)


def test_summary_shows_requested_options_not_in_effect(
    make_spec: MakeSpec, a_record: MakeRecord, tmp_path: Any
) -> None:
    asked = {"fusion": True, "hoisting": True, "backend": "auto"}
    spec = make_spec(system_options=asked)
    found = {"fusion": "false", "hoisting": "true", "backend": "stepwise", "calls": "one a step"}
    record = a_record(spec, effective_options=found, config=spec.to_dict())
    text = format_summary(record, tmp_path / "r0.json")
    assert "ran with backend stepwise, calls one a step, fusion=false" in text
    assert "fusion=false instead of true" in text
    assert "hoisting" not in text
    honored = {"build": "source", "limit": "null", "name": "Some"}
    spec = make_spec(system_options={"build": "auto", "limit": None, "name": "Some"})
    text = format_summary(
        a_record(spec, effective_options=honored, config=spec.to_dict()), tmp_path / "r0.json"
    )
    assert "instead of" not in text
    assert "ran with" not in format_summary(a_record(make_spec()), tmp_path / "r0.json")


def test_a_terminal_gets_a_bar_and_a_log_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with Reporter(2, console) as reporter:
        for words in ("first", "second"):
            reporter.show_trial(words)
            reporter.write_progress(f"chooses for {words} [now]")
            reporter.write_result(f"{words} done [ok]")
    assert "[1/2] first done [ok]" in screen.getvalue()
    assert "  chooses for second [now]" in screen.getvalue()
    assert capsys.readouterr() == ("", "")
    with Reporter(1, Console(file=screen, force_terminal=False)) as reporter:
        reporter.show_trial("only")
        reporter.write_progress("chooses")
        reporter.write_result("only done")
    assert capsys.readouterr().err == "  chooses\n[1/1] only done\n"


def test_nothing_is_drawn_while_a_worker_runs(make_spec: MakeSpec, tmp_path: Any) -> None:
    screen = io.StringIO()
    with Reporter(2, Console(file=screen, force_terminal=True, width=100)) as reporter:
        reporter.show_trial("a trial")
        before = screen.getvalue()
        measure_alone(make_spec(), tmp_path / "r0.json", tmp_path / "r0.log")
        assert screen.getvalue() == before
        reporter.write_result("a trial")
        assert screen.getvalue() != before


def test_equally_named_trials_get_distinct_labels(make_spec: MakeSpec) -> None:
    specs = [
        make_spec(order="length", dataset_options={"vocab_modulo": 0, "depth": 3}),
        make_spec(order="length", dataset_options={"vocab_modulo": 256, "depth": 3}),
        make_spec(order="shuffled", dataset_options={"vocab_modulo": 0, "depth": 3}),
        make_spec(batch_size=7, dataset_options={"vocab_modulo": 7}),
    ]
    same, other = format_trial(build_trial(specs[0])), format_trial(build_trial(specs[3]))
    first, second, third, alone = format_trials(specs)
    for label, modulo in ((first, 0), (second, 256)):
        settings = sorted(label.removeprefix(same).split())
        assert settings == [f"dataset.options.vocab_modulo={modulo}", "order=length"]
    assert "order=shuffled" in third.split()
    assert alone == other
