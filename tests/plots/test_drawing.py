"""Drawing writes the files that experiments announce, equal for equal records."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from matplotlib.figure import Figure

from harness.planning.artefacts import Choices
from harness.planning.config import Composer
from harness.planning.grid import experiment_names
from plots.declaration import read_declaration
from tests.support.experiments import FIGURE, TABLE, run_draw, write_measured

pytestmark = pytest.mark.slow  # all of them together take seconds


@pytest.fixture
def coarse_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of few pixels, and empty PDFs: other tests look at them."""
    save = Figure.savefig

    def savefig(figure: Figure, file: BytesIO, **options: Any) -> None:
        if options["format"] == "png":
            save(figure, file, dpi=30, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)


@pytest.mark.usefixtures("coarse_pictures")
def test_every_experiment_draws_exactly_the_files_it_announces(
    choices: Choices, composer: Composer
) -> None:
    names = experiment_names(choices.conf_dir)
    announced = set()
    for name in names:
        write_measured(name, choices, composer)
        assert run_draw(name, choices) == 0, name
        announced |= set(read_declaration(name, choices.conf_dir).files)
    measured = {choices.results_dir / name for name in ("raw", "counts")}
    files = [path for path in choices.results_dir.rglob("*") if path.is_file()]
    drawn = [path for path in files if not measured.intersection(path.parents)]
    assert {str(path.relative_to(choices.results_dir)) for path in drawn} == announced
    assert len(names) >= 10


@pytest.mark.parametrize("name", [FIGURE, TABLE])
def test_equal_records_draw_equal_files(name: str, choices: Choices, composer: Composer) -> None:
    write_measured(name, choices, composer)
    announced = read_declaration(name, choices.conf_dir).files
    files = [choices.results_dir / file for file in announced]
    assert run_draw(name, choices) == 0
    first = [path.read_bytes() for path in files]
    assert run_draw(name, choices) == 0
    assert first == [path.read_bytes() for path in files]


def test_an_unknown_experiment_is_named_in_one_line(
    choices: Choices, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_draw("nothing", choices) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert FIGURE in error
