"""Drawing: declared files, which are equal for equal records, and the text of tables in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dynbatch.harness.planning.artifacts import Choices, PlannedTrial
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.grid import list_experiment_names
from dynbatch.harness.values.paths import ROOT
from dynbatch.plots import drawable
from dynbatch.plots.declaration import read_declaration
from dynbatch.plots.drawable import hash_drawing_code
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
from tests.support.experiments import FIGURE, TABLE, read_rows, run_draw, write_measured

Patch = pytest.MonkeyPatch
REFERENCE = ROOT / "results" / "reference"


def select_names(conf_dir: Path) -> list[str]:
    """Return two experiments of each kind, and those of which there is no committed result.

    tests/whole/test_reference.py draws the committed ones again.
    """
    committed = {path.name.partition(".")[0] for path in REFERENCE.glob("*/*/*/*.csv*")}
    declared = [read_declaration(name, conf_dir) for name in list_experiment_names(conf_dir)]
    by_kind: dict[tuple[object, object], list[str]] = {}
    for one in declared:
        kind = (one.table or {}).get("kind"), (one.figure or {}).get("kind")
        by_kind.setdefault(kind, []).append(one.name)
    chosen = {name for names in by_kind.values() for name in (names[0], names[-1])}
    drawn = {one.name for one in declared if {Path(stem).name for stem in one.stems} <= committed}
    return sorted({*chosen, *(one.name for one in declared if one.name not in drawn)})


@pytest.mark.slow
@pytest.mark.usefixtures("without_pixels")
def test_experiments_draw_exactly_the_announced_files(choices: Choices, composer: Composer) -> None:
    names = select_names(choices.conf_dir)
    announced = set()
    for name in names:
        write_measured(name, choices, composer)
        announced |= set(read_declaration(name, choices.conf_dir).files)
    assert run_draw(names[0], choices, *names[1:]) == 0
    measured = {choices.results_dir / name for name in ("raw", "counts")}
    files = [path for path in choices.results_dir.rglob("*") if path.is_file()]
    drawn = [path for path in files if not measured.intersection(path.parents)]
    assert {str(path.relative_to(choices.results_dir)) for path in drawn} == announced
    assert len(names) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("name", [FIGURE, TABLE])
def test_equal_records_draw_equal_files(name: str, choices: Choices, composer: Composer) -> None:
    write_measured(name, choices, composer)
    announced = read_declaration(name, choices.conf_dir).files
    files = [choices.results_dir / file for file in announced]
    assert run_draw(name, choices) == 0
    first = [path.read_bytes() for path in files]
    assert run_draw(name, choices) == 0
    assert first == [path.read_bytes() for path in files]


@pytest.mark.parametrize(
    "file", ["plots/tables/cells.py", "systems/mine.py", "harness/models/mine.py", "claims/a.yaml"]
)
def test_a_change_of_what_draws_is_seen(file: str, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(drawable, "ROOT", tmp_path)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("a = 1\n")
    before = hash_drawing_code(tmp_path)
    assert hash_drawing_code(tmp_path) == before
    (tmp_path / file).write_text("a = 2\n")
    assert hash_drawing_code(tmp_path) != before


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
    assert format_with(quantity="n_batches", value=1174, warnings="background_load") == "1,174"
    assert format_plain(0.25) == "0.25"

    wide = {"warnings": "wide_interval", "low": 0.0512, "high": 1.231}
    assert format_with(**wide) == "0.834\N{DAGGER}"
    assert format_with(quantity="preparing_s", **wide) == "0.05 to 1.24", "rounded outward"
    assert format_with(quantity="preparing_s over base", **wide)[-1] == "\N{DAGGER}"
    wide["warnings"] = "disturbed wide_interval"
    assert format_with(quantity="preparing_s", **wide) == "0.834\N{DAGGER}"
    wide = {"warnings": "wide_interval", "low": -12.21, "high": 1234}
    assert format_with(quantity="peak_memory_mib", is_partial=True, **wide) == "-20 to 1,240 [2]"


def test_formats_escape_special_characters() -> None:
    systems = pd.Index(["a", "b"], name="system")
    columns = pd.MultiIndex.from_tuples([("a_b", "x & y"), ("c|d", "z")])
    cells = pd.DataFrame("out_of<memory>", index=systems, columns=columns)
    title = "50% & <it> \N{LESS-THAN OR EQUAL TO} 2"
    table = Table("tables/made_up", title, pd.DataFrame(), cells, ("A note.",))
    latex, html, markdown = to_latex(table), to_html(table), to_markdown(table)
    assert r"50\% \& \textless{}it\textgreater{} $\leq$ 2" in latex
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


def test_only_numbers_of_systems_have_versions(choices: Choices, composer: Composer) -> None:
    versions = {"made_up": "1.5", "flags": "-O3"}
    write_measured(TABLE, choices, composer, lambda *_: {"versions": versions})
    assert run_draw(TABLE, choices) == 0
    rows = read_rows(choices.results_dir / f"tables/{TABLE}_systems.csv")
    ours = {(row["measured_on"], row["versions"]) for row in rows if row["status"] == "ok"}
    assert ours == {("2026-01-01", "flags -O3; made_up 1.5")}
    assert {row["versions"] for row in rows if row["status"] == "published"} == {""}
