"""A new system is one file and one YAML: it is planned and shown with nothing else touched."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.commands import draw
from harness.planning.artefacts import Choices, choices_from, plan_artefact
from harness.planning.compose import Composer
from harness.planning.grid import SCALES
from plots.numbers.artefact import Artefact
from plots.numbers.gather import gather
from plots.numbers.panels import panels_of
from tests.support.made_up_records import conf_with_made_up_systems, write_made_up_records

pytestmark = pytest.mark.slow  # whole artefacts are drawn

LABEL = "Somebody's framework"
HEADLINES = ("headline_tree_lstm", "headline_tree_lstm_inference", "headline_lattice_lstm")


@pytest.fixture(scope="module")
def conf_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Beside the made-up systems one framework, of which it writes a file for one model."""
    folder = tmp_path_factory.mktemp("dropped_in")
    conf_dir = conf_with_made_up_systems(folder)
    content = {
        "name": "fresh",
        "kind": "framework",
        "label": LABEL,
        "adapter": "systems.null_system",
        "models": ["tree_lstm"],
    }
    (conf_dir / "system" / "fresh.yaml").write_text(yaml.safe_dump(content))
    return conf_dir


@pytest.fixture(scope="module")
def composer(conf_dir: Path) -> Composer:
    return Composer(conf_dir)


def chosen(conf_dir: Path, tmp_path: Path, scale: str) -> Choices:
    config = {"scale": scale, "device": "cpu", "data_root": tmp_path / "none"}
    return choices_from({**config, "results_dir": tmp_path, "conf_dir": conf_dir}, {})


def drawn(name: str, choices: Choices, composer: Composer) -> Artefact:
    trials = plan_artefact(name, choices, composer)
    write_made_up_records(trials, choices)
    return gather(name, choices, trials)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", HEADLINES)
def test_it_joins_the_headlines_whose_model_it_runs(
    name: str, scale: str, conf_dir: Path, composer: Composer, tmp_path: Path
) -> None:
    trials = plan_artefact(name, chosen(conf_dir, tmp_path, scale), composer)
    with_fresh = {t.spec.model for t in trials if t.spec.system == "fresh"}
    assert with_fresh == ({"tree_lstm"} if "tree" in name else set())
    assert {"vertex", "dynet"} <= {trial.spec.system for trial in trials}


@pytest.mark.parametrize("name", HEADLINES)
def test_its_column_stands_in_the_table_of_systems_only(
    name: str, conf_dir: Path, composer: Composer, tmp_path: Path
) -> None:
    choices = chosen(conf_dir, tmp_path, "smoke")
    drawn(name, choices, composer)
    said = ["--scale=smoke", "--device=cpu", f"--data-root={tmp_path}/none"]
    folders = [f"--results-dir={tmp_path}", f"--conf-dir={conf_dir}"]
    assert draw.main([name, *said, *folders]) == 0
    systems = (tmp_path / f"tables/{name}_systems.md").read_text(encoding="utf-8")
    strategies = (tmp_path / f"tables/{name}_strategies.md").read_text(encoding="utf-8")
    assert (LABEL in systems) == ("tree" in name)
    assert LABEL not in strategies
    assert "DyNet agenda" in systems


def test_its_curve_stands_in_the_figures_of_systems(
    conf_dir: Path, composer: Composer, tmp_path: Path
) -> None:
    artefact = drawn("cavs_fig8d", chosen(conf_dir, tmp_path, "paper"), composer)
    shown = {panel.group: panel.series for panel in panels_of(artefact, "epoch_s")}
    (fresh,) = (series for series in shown["systems"] if series.system == "fresh")
    assert fresh.label == LABEL
    assert [mark.x for mark in fresh.drawn] == [1, 16, 32, 64, 128, 256]
    assert "fresh" not in {series.system for series in shown["strategies"]}


def test_what_a_scale_does_not_measure_has_no_column(
    conf_dir: Path, composer: Composer, tmp_path: Path
) -> None:
    """The tables of the Cavs paper have few systems at the small scale."""
    artefact = drawn("cavs_table1_tree_lstm", chosen(conf_dir, tmp_path, "smoke"), composer)
    assert "fresh" in artefact.presentation.compare["systems"]
    assert artefact.compare["systems"] == ("vertex", "dynet", "fold", "torch_levels", "torchfold")
