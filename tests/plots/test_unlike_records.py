"""Records that may not share a table, and declarations that say too little, are refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.errors import ConfigError, RecordError
from harness.planning.artefacts import Choices, PlannedTrial
from harness.planning.config import Composer
from harness.values.places import CONF_DIR
from plots.declaration import read_declaration
from plots.experiment import load_experiment
from tests.support.experiments import FIGURE, run_draw, write_measured
from tests.support.records import MACHINE

TABLE = "cavs_short_table1_tree_lstm"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "value", "fact"),
    [
        ("machine", {**MACHINE, "cpu": "another CPU"}, "have unlike cpu"),
        ("machine", {**MACHINE, "memory_bytes": 1 << 30}, "have unlike memory_gib"),
        ("versions", {"made_up": "2.0"}, "differ in version of made_up"),
        ("source_sha256", "1" * 64, "differ in measured code"),
    ],
)
def test_unlike_records_are_refused(
    field: str,
    value: object,
    fact: str,
    choices: Choices,
    composer: Composer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        return {field: value} if trial.settings["batch_size"] == 64 else {}

    trials = write_measured(FIGURE, choices, composer, change)
    with pytest.raises(RecordError, match=fact):
        load_experiment(FIGURE, choices, trials)
    assert run_draw(FIGURE, choices) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"draw: {FIGURE}: ")
    assert not list(choices.results_dir.rglob(f"{FIGURE}.*"))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"table": None}, "has no table and no figure"),
        ({"table": {"rows": ["batch_size"]}}, "a table needs rows and values"),
        ({"table": {"row": ["batch_size"]}}, "unknown word of a table 'row', did you mean rows"),
        ({"table": {"kind": "cliams"}}, "unknown kind of a table 'cliams', did you mean claims"),
        ({"figure": {"x": "batch_size"}}, "unknown kind of a figure None"),
        ({"figure": "curves"}, "figure must map keys to values"),
        ({"compare": {"policies": ["vertex"]}}, "unknown comparison 'policies'"),
        ({"notes": [{"a": 1}]}, "a note is text"),
        (
            {"table": {"rows": ["batch_size"], "values": {"throughputs": "trees/s"}}},
            "unknown quantity 'throughputs', did you mean throughput",
        ),
    ],
)
def test_a_wrong_declaration_is_refused_in_one_line(
    change: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    content = yaml.safe_load((CONF_DIR / f"experiment/{TABLE}.yaml").read_text())
    (tmp_path / "experiment").mkdir()
    (tmp_path / "system").symlink_to(CONF_DIR / "system")
    (tmp_path / "experiment/broken.yaml").write_text(yaml.safe_dump(content | change))
    with pytest.raises(ConfigError) as caught:
        read_declaration("broken", tmp_path)
    assert problem in str(caught.value)
    assert "broken.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("epoch", "many"),
        ("published", "foo"),
        ("published", {"model": "x"}),
        ("settings", ["a"]),
        ("values", ["throughput"]),
        ("values", {"throughput": None}),
        ("rows", [{"a": 1}]),
        ("rows", "system"),
        ("extra", None),
        ("base", {"system": "vertx"}),
    ],
)
def test_a_word_of_a_table_with_a_wrong_type_is_refused_in_one_line(
    word: str, value: object, tmp_path: Path
) -> None:
    shutil.copytree(CONF_DIR, tmp_path / "conf")
    path = tmp_path / "conf" / "experiment" / "headline_tree_lstm.yaml"
    content = yaml.safe_load(path.read_text())
    content["table"][word] = value
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=rf"^experiment/headline_tree_lstm\.yaml: .*{word}.*$"):
        read_declaration("headline_tree_lstm", tmp_path / "conf")
