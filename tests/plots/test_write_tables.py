"""Tables as files: parts that fit a page, escapes, statuses, and the facts of each system."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from dynbatch.harness.planning.artifacts import Choices, PlannedTrial
from dynbatch.harness.planning.config import Composer
from dynbatch.plots.tables.cells import (
    EN_DASH,
    Table,
    format_interval,
    format_number,
    format_plain,
    format_ratio,
    format_significant,
)
from dynbatch.plots.write import to_html, to_latex, to_markdown
from tests.support.experiments import TABLE, load_made_up, read_rows, run_draw, write_measured


def make_table(columns: list[tuple[str, str]], text: str = "1", **more: Any) -> Table:
    index = pd.Index(["a", "b"], name="system")
    pairs = pd.MultiIndex.from_tuples(columns)
    cells = pd.DataFrame(text, index=index, columns=pairs)
    return Table("tables/made_up", more.get("title", "T"), pd.DataFrame(), cells, ("A note.",))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.12345, "0.123"),
        (0.0999999, "0.100"),
        (9.999, "10.0"),
        (1234.5, "1,230"),
        (1.5e-5, "0.0000150"),
        (-2, "-2.00"),
    ],
)
def test_numbers_have_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert format_significant(value) == text


def test_ends_of_intervals_are_rounded_outward() -> None:
    assert format_interval(1.2345, 1.2301, 2) == "1.23 to 1.24"
    assert format_interval(1.23, 1.25, 2) == "1.23 to 1.25", "already round"
    assert format_ratio(1.234, 1.2289, 1.2401) == "1.23 (1.22 to 1.25)"
    assert format_ratio(12.34, 12.31, 12.34, "background_load") == "12.3 (12.3 to 12.4)\N{DAGGER}"
    assert format_ratio(2, float("nan"), float("nan")) == "2.00", "of one round"


def test_a_number_prints_as_its_status_and_kind_ask() -> None:
    def format_with(**values: Any) -> str:
        number = {"value": 0.8342, "low": 0.8, "high": 0.9, "n_rounds": 2, "status": "ok"}
        more = {"warnings": "", "is_partial": False, "quantity": "throughput"}
        return format_number(pd.Series({**number, **more, **values}))

    assert format_with(quantity="throughput over ceiling") == "83.4"
    assert format_with(quantity="instance_s over base") == "0.83 (0.80 to 0.90)"
    assert format_with(quantity="instance_s over base", value=1) == "1"
    assert format_with(is_partial=True, warnings="background_load") == "0.834\N{DAGGER} [2]"
    assert format_with(status="oom") == "oom"
    assert format_with(status="not planned") == EN_DASH
    assert format_with(status="published", value=43200) == "43,200"
    assert format_with(status="published", value=0.83) == "0.83", "no digit that the paper lacks"
    assert format_with(quantity="n_batches", value=1174, warnings="background_load") == "1,174", (
        "counted"
    )
    assert format_plain(0.25) == "0.25"


def test_formats_escape_special_characters() -> None:
    table = make_table([("a_b", "x & y"), ("c|d", "z")], "out_of<memory>", title="50% & <it>")
    latex, html, markdown = to_latex(table), to_html(table), to_markdown(table)
    assert r"50\% \& \textless{}it\textgreater{}" in latex
    assert r"out\_of\textless{}memory\textgreater{}" in latex
    assert "out_of&lt;memory&gt;" in html
    assert r"c\|d: z" in markdown
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 1
    assert {line.count("&") - 2 * line.count(r"\&") for line in latex.splitlines()} >= {2}
    assert "A note." in latex
    assert "A note." in markdown
    assert "A note." not in html, "the report prints notes once"


def test_a_failure_prints_its_status_and_reason(choices: Choices, composer: Composer) -> None:
    status = "wrong_result"

    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        fails = trial.settings["system"] == "fold_policy" and trial.settings["batch_size"] == 16
        # The time in the record of a wrong result must not be shown.
        return {"status": status, "reason": "made up"} if fails and round_ == 0 else {}

    write_measured(TABLE, choices, composer, change)
    assert run_draw(TABLE, choices) == 0
    stem = choices.results_dir / f"tables/{TABLE}_strategies"
    rows = read_rows(stem.with_suffix(".csv"))
    failed = [row for row in rows if row["system"] == "fold_policy" and row["batch_size"] == "16"]
    assert {(row["status"], row["value"]) for row in failed} == {(status, "")}
    assert f"Fold's policy: {status}: made up" in stem.with_suffix(".md").read_text()
    for suffix in (".md", ".html", ".tex"):
        text = stem.with_suffix(suffix).read_text()
        assert status in text.replace(r"\_", "_")


def test_numbers_of_systems_get_their_versions_and_others_none(
    choices: Choices, composer: Composer
) -> None:
    versions = {"made_up": "1.5", "flags": "-O3"}
    load_made_up(TABLE, choices, composer, lambda trial, round_: {"versions": versions})
    assert run_draw(TABLE, choices) == 0
    rows = read_rows(choices.results_dir / f"tables/{TABLE}_systems.csv")
    ours = {(row["measured_on"], row["versions"]) for row in rows if row["status"] == "ok"}
    assert ours == {("2026-01-01", "flags -O3; made_up 1.5")}
    assert {row["versions"] for row in rows if row["status"] == "published"} == {""}
