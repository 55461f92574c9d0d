"""The report and the sheets it is made of."""

from __future__ import annotations

import json

import pytest

from harness.commands import report
from harness.planning.artefacts import Choices
from harness.planning.compose import Composer
from tests.support.artefacts import FIGURE, TABLE, measured, run_draw

pytestmark = pytest.mark.slow  # all of them together take seconds


def test_the_report_needs_no_other_file(choices: Choices, composer: Composer) -> None:
    for name in (FIGURE, TABLE):
        measured(name, choices, composer)
        run_draw(name, choices)
    out = choices.results_dir / "report.html"
    sheets = [str(choices.results_dir / f"artefacts/{name}.json") for name in (FIGURE, TABLE)]
    assert report.main([str(out), *sheets, f"--results-dir={choices.results_dir}"]) == 0
    page = out.read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 1
    assert page.count("<table>") == 2
    assert "http" not in page.replace("https://www.w3.org", "")
    assert "synthetic" in page
    for words in ("Made-up CPU", "made_up 1.0", "snakemake all", "Titan X"):
        assert words in page


def test_the_sheet_counts_statuses_and_warnings(choices: Choices, composer: Composer) -> None:
    measured(FIGURE, choices, composer, lambda trial, round_: {"warnings": ("drift",)})
    run_draw(FIGURE, choices)
    sheet = json.loads((choices.results_dir / f"artefacts/{FIGURE}.json").read_text())
    assert sheet["statuses"] == {"ok": sheet["n_records"]}
    assert sheet["warnings"] == {"drift": sheet["n_records"]}
