"""Drawing writes the declared files, which are equal for equal records."""

from __future__ import annotations

import pytest

from dynbatch.harness.planning.artifacts import Choices
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.grid import list_experiment_names
from dynbatch.plots.declaration import read_declaration
from tests.support.experiments import FIGURE, TABLE, run_draw, write_measured

pytestmark = pytest.mark.slow  # together they take seconds


@pytest.mark.usefixtures("without_pixels")
def test_every_experiment_draws_exactly_the_files_it_announces(
    choices: Choices, composer: Composer
) -> None:
    names = list_experiment_names(choices.conf_dir)
    announced = set()
    for name in names:
        write_measured(name, choices, composer)
        announced |= set(read_declaration(name, choices.conf_dir).files)
    assert run_draw(names[0], choices, *names[1:]) == 0
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
