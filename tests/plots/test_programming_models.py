"""Cavs's landscape: what is run here follows from models, a share from records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.planning.artefacts import Choices, PlannedTrial, plan_artefact
from harness.planning.compose import Composer
from harness.planning.kinds import KnownSystem
from plots.drawing.style import use_style
from plots.numbers.gather import gather
from plots.numbers.presentation import read_presentation
from plots.tables.programming_models import kinds_of, make, table_of
from tests.support.artefacts import lines_of
from tests.support.made_up_records import write_made_up_records

NAME = "cavs_fig2"
DASH = "\N{EN DASH}"


@pytest.mark.parametrize(
    ("models", "kinds"),
    [
        (("var_lstm",), {"chain"}),
        (("tree_lstm", "tree_fc", "bilstm"), {"chain", "tree"}),
        (("lattice_lstm",), {"lattice"}),
        (("no_model",), set()),
        (("systems.on_torch.folded",), {"tree"}),
        (None, {"chain", "sentence_pair", "parsed_sentence", "tree", "lattice"}),
    ],
)
def test_kinds_are_those_of_the_models(
    choices: Choices, models: tuple[str, ...] | None, kinds: set[str]
) -> None:
    system = KnownSystem("one", "framework", "One", models=models)
    assert kinds_of(system, choices.conf_dir) >= kinds
    if models is not None:
        assert kinds_of(system, choices.conf_dir) == kinds


def test_a_row_shows_words_what_is_run_here_and_the_measured_share(choices: Choices) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        system, n = trial.settings["system"], trial.settings["batch_size"]
        phases = {"construct": None if system == "torch_eager" else 0.02, "schedule": 0.03}
        return {"phases_s": phases, "instances_per_s": n / 0.2}

    trials = plan_artefact(NAME, choices, Composer(choices.conf_dir))
    write_made_up_records(trials, choices, change)
    artefact = gather(NAME, choices, trials)
    rows = {header: [str(cell) for cell in cells] for header, cells in table_of(artefact).rows}
    vertex = next(cells for header, cells in rows.items() if header.startswith("vertex-centric"))
    assert vertex == ["any", "yes", "yes", "yes", "by vertex", "25.0", "vertex function"]
    fold = next(cells for header, cells in rows.items() if "TorchFold" in header)
    assert fold[:4] == ["any", "no", "yes", "no"], "what was not written can be expressed"
    static = next(cells for header, cells in rows.items() if header.startswith("static unrolling"))
    assert static[:4] == ["sequences", "yes", "no", "no"]
    theirs = [column.label for column in table_of(artefact).columns if column.published]
    assert theirs == ["expresses"]
    eager = next(cells for header, cells in rows.items() if "PyTorch eager" in header)
    assert eager[5] == "not told"
    use_style()
    make(artefact, choices.results_dir)
    lines = lines_of(choices.results_dir / f"tables/{NAME}.csv")
    assert len(lines) == len(rows)
    assert {line["value"] for line in lines if line["system"] == "vertex"} == {"25.0"}


def test_a_system_that_there_is_not_has_dashes(choices: Choices, tmp_path: Path) -> None:
    """Its way to program keeps its words."""
    shown = read_presentation(NAME, choices.conf_dir).show["rows"]
    named = {system for row in shown for system in row["systems"]}
    without = tmp_path / "conf"
    (without / "system").mkdir(parents=True)
    (without / "model").mkdir()
    (without / "system" / "cavs.yaml").write_text(
        yaml.safe_dump({"name": "cavs", "kind": "strategy", "label": "Cavs"})
    )
    artefact = gather(NAME, choices, ())
    rows = dict(table_of(replace(artefact, conf_dir=without)).rows)
    assert len(rows) == len(named)
    for header, cells in rows.items():
        expected = "no" if header.endswith(artefact.label("cavs")) else DASH
        assert [str(cell) for cell in cells[1:4]] == [expected] * 3
        assert str(cells[5]) == DASH
        assert str(cells[0])
        assert str(cells[4])
