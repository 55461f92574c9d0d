"""What is drawn is what the records say, in the files that an artefact announces."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from matplotlib.figure import Figure

from harness.commands import draw
from harness.planning.artefacts import Choices, choices_from, plan_artefact
from harness.planning.compose import Composer
from harness.planning.grid import experiment_names
from plots.numbers.gather import gather
from plots.numbers.presentation import read_presentation
from plots.words.notes import title_of
from tests.support.artefacts import FIGURE, TABLE, lines_of, measured, run_draw
from tests.support.made_up_records import made_up_record

pytestmark = pytest.mark.slow  # all of them together take seconds


@pytest.fixture
def coarse_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of few pixels, and empty PDFs: what they show is tested elsewhere."""
    save = Figure.savefig

    def savefig(figure: Figure, file: BytesIO, **options: Any) -> None:
        if options["format"] == "png":
            save(figure, file, dpi=30, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)


@pytest.mark.slow
@pytest.mark.usefixtures("coarse_pictures")
def test_every_artefact_draws_exactly_the_files_it_announces(
    choices: Choices, composer: Composer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draw, "Composer", lambda conf_dir: composer)  # which remembers
    names = experiment_names(choices.conf_dir)
    announced = set()
    for name in names:
        measured(name, choices, composer)
        assert run_draw(name, choices) == 0
        announced |= set(read_presentation(name, choices.conf_dir).files)
    measured_ones = {choices.results_dir / name for name in ("raw", "counts")}
    files = [path for path in choices.results_dir.rglob("*") if path.is_file()]
    drawn = [path for path in files if not measured_ones.intersection(path.parents)]
    assert {str(path.relative_to(choices.results_dir)) for path in drawn} == announced
    assert len(names) >= 10


@pytest.mark.slow
def test_equal_records_draw_equal_files(choices: Choices, composer: Composer) -> None:
    measured(FIGURE, choices, composer)
    files = [choices.results_dir / f for f in read_presentation(FIGURE, choices.conf_dir).files]
    run_draw(FIGURE, choices)
    first = [path.read_bytes() for path in files]
    run_draw(FIGURE, choices)
    assert first == [path.read_bytes() for path in files]


def test_figure_data_are_the_numbers_of_the_records(choices: Choices, composer: Composer) -> None:
    choices = replace(choices, scale="paper")  # several rounds
    trials = measured(FIGURE, choices, composer)
    run_draw(FIGURE, choices)
    rows = lines_of(choices.results_dir / f"figures/{FIGURE}.csv")
    trial = trials[0]
    rounds = [made_up_record(trial, r).instances_per_s for r in range(trial.rounds)]
    expected = median(8544 / value for value in rounds if value)
    row = next(
        r
        for r in rows
        if r["system"] == trial.settings["system"]
        and float(r["x"]) == trial.settings["batch_size"]
        and r["source"] == "measured"
    )
    assert float(row["value"]) == pytest.approx(expected)
    assert float(row["low"]) < float(row["value"]) < float(row["high"])
    assert (row["unit"], row["n_rounds"]) == ("s/epoch", str(trial.rounds))


@pytest.mark.slow
def test_published_numbers_are_marked_as_the_papers(choices: Choices, composer: Composer) -> None:
    measured(TABLE, choices, composer)
    run_draw(TABLE, choices)
    rows = lines_of(choices.results_dir / f"tables/{TABLE}_strategies.csv")
    row = next(
        r
        for r in rows
        if r["comparison"] == "published" and r["system"] == "fold" and float(r["x"]) == 64
    )
    assert (row["quantity"], float(row["value"])) == ("computation_s", 29.0)
    assert "Table 1" in row["source"]
    assert "Titan X" in row["source"]
    markdown = (choices.results_dir / f"tables/{TABLE}_strategies.md").read_text()
    assert "paper, Titan X" in markdown


@pytest.mark.slow
def test_strategies_and_systems_never_share_a_table(choices: Choices, composer: Composer) -> None:
    measured(TABLE, choices, composer)
    run_draw(TABLE, choices)
    for comparison, system in (("strategies", "dynet"), ("systems", "dynet_policy")):
        rows = lines_of(choices.results_dir / f"tables/{TABLE}_{comparison}.csv")
        ours = {row["system"] for row in rows if row["source"] == "measured"}
        assert ours
        assert system not in ours


def test_synthetic_data_say_so_in_every_title(
    choices: Choices, composer: Composer, tmp_path: Path
) -> None:
    for name in (FIGURE, TABLE, "cavs_fig8c"):
        artefact = gather(name, choices, plan_artefact(name, choices, composer))
        assert ("synthetic" in title_of(artefact)) == (name != "cavs_fig8c")
    (tmp_path / "data" / "sst").mkdir(parents=True)
    real = choices_from(
        {"scale": "smoke", "data_root": tmp_path / "data", "conf_dir": choices.conf_dir}, {}
    )
    artefact = gather(FIGURE, real, plan_artefact(FIGURE, real, composer))
    assert "synthetic" not in title_of(artefact)


def test_draw_tells_of_an_unknown_artefact_in_one_line(
    choices: Choices, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_draw("nothing", choices) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert FIGURE in error
