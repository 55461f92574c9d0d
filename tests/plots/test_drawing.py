"""Drawing writes the declared files, which are equal for equal records."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynbatch.harness.planning.artifacts import Choices
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.grid import list_experiment_names
from dynbatch.harness.values.paths import ROOT
from dynbatch.plots import drawable
from dynbatch.plots.declaration import read_declaration
from dynbatch.plots.drawable import hash_drawing_code
from tests.support.experiments import FIGURE, TABLE, run_draw, write_measured

pytestmark = pytest.mark.slow  # together they take seconds
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


@pytest.mark.usefixtures("without_pixels")
def test_experiments_draw_exactly_the_files_that_they_announce(
    choices: Choices, composer: Composer
) -> None:
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
def test_a_change_of_what_draws_is_seen(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawable, "ROOT", tmp_path)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("a = 1\n")
    before = hash_drawing_code(tmp_path)
    assert hash_drawing_code(tmp_path) == before
    (tmp_path / file).write_text("a = 2\n")
    assert hash_drawing_code(tmp_path) != before
