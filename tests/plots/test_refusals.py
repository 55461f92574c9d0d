"""Errors in tables, figures and records are reported in one line with their location."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dynbatch.harness.planning.artifacts import Choices, PlannedTrial
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.grid import list_experiment_names
from dynbatch.harness.values.paths import CONF_DIR
from dynbatch.plots.declaration import read_declaration
from dynbatch.plots.experiment import load_experiment
from tests.support.experiments import FIGURE, run_draw, write_measured
from tests.support.records import MACHINE
from tests.support.refusals import expect_refusal, read_refusal

Output = pytest.CaptureFixture[str]
WRONG = {1: {2: 3}}  # not a text, number, list or mapping of names
FAMILY = {"name": "DyNet", "look": "dynet_policy", "policies": ["depth"], "color": "red"}
WAY = {"way": "a", "expresses": "any", "systems": ["vertx"], "batches": "no", "optimizes": "no"}
RATINGS = ("batches", "analysis", "libraries", "generality", "effort", "performance")
RATED = {"framework": "a", "system": "vertx", **dict.fromkeys(RATINGS, "low")}
FUNCTIONS = {"table": "build", "figure": "draw"}
LINES, SWEEP = "cavs_lines_of_code", "cavs_short_table1_tree_lstm"


def list_kinds() -> list[tuple[str, str]]:
    """Return a pair of "table" or "figure" and an experiment for each kind."""
    found: dict[tuple[str, str], str] = {}
    for name in list_experiment_names():
        for part in FUNCTIONS:
            if content := getattr(read_declaration(name, CONF_DIR), part):
                found.setdefault((part, content["kind"]), name)
    return [(part, name) for (part, _), name in found.items()]


def refuse(part: str, name: str, choices: Choices, change: Mapping[str, Any], words: str) -> None:
    """Expect an error of a table or figure with changed keys; None removes a key."""
    experiment = load_experiment(name, choices, ())
    content = {**getattr(experiment.declaration, part), **change}
    content = {key: value for key, value in content.items() if value is not None}
    declaration = replace(experiment.declaration, **{part: content})
    module = importlib.import_module(f"dynbatch.plots.{part}s.{content['kind']}")
    with expect_refusal(declaration.file, words):
        getattr(module, FUNCTIONS[part])(replace(experiment, declaration=declaration))


@pytest.mark.parametrize(("part", "name"), list_kinds())
def test_an_unknown_key_and_a_value_of_a_wrong_type_are_refused(
    part: str, name: str, choices: Choices
) -> None:
    refuse(part, name, choices, {"nonsense": 1}, f"unknown key of a {part} 'nonsense'")
    for key in getattr(read_declaration(name, CONF_DIR), part):
        if key not in ("kind", "also"):
            refuse(part, name, choices, {key: WRONG}, f"{part}.{key}")


@pytest.mark.parametrize(
    ("part", "name", "key", "value", "message"),
    [
        ("figure", "dynet_fig3", "published", {"table": "dynet_fig3", "modle": "x"}, "published."),
        ("figure", "dynet_fig2", "published", {"table": "dynet_fig2"}, "figure.published."),
        ("figure", "edbatch_fig9", "families", [FAMILY], "figure.families."),
        ("figure", "cavs_fig8a", "values", None, "figure.values: Field required"),
        ("figure", "cavs_fig8a", "x", None, "expected either x or axes"),
        ("figure", "cavs_fig8d", "values", {"instance_ms": "ms"}, "did you mean instance_s"),
        ("figure", "first_look", "parts", None, "expected either parts, or steps and settings"),
        ("figure", "first_look", "parts", {"foward_ms": "f"}, "did you mean forward_ms"),
        ("figure", "answers", "band", None, "figure.band: Field required"),
        ("table", LINES, "code", {"vertex": {"package": "a"}}, "table.code."),
        ("table", LINES, "code", {"vertx": {"networks": "dynbatch.harness.models"}}, "vertex"),
        ("table", "acrobat_table2", "code", [{"model": "a", "paper": "b", "page": 4}], "code."),
        ("table", "cavs_fig2", "ways", [WAY], "unknown system in table.ways 'vertx'"),
        ("table", "acrobat_table1", "frameworks", [RATED], "in table.frameworks 'vertx'"),
        ("table", "acrobat_table1", "models", ["tree_lsmt"], "did you mean tree_lstm"),
        ("table", SWEEP, "values", {"througput": "1/s"}, "did you mean throughput"),
        ("table", SWEEP, "values", {"throughput over dynett": "a"}, "did you mean dynet"),
        ("table", SWEEP, "rows", ["hiden_size"], "no trial has the setting 'hiden_size'"),
        ("table", SWEEP, "settings", {"a": {"batchsize": 1}}, "did you mean batch_size"),
        ("table", SWEEP, "extra", ["ceilling"], "did you mean ceiling"),
    ],
)
def test_error_names_the_invalid_key_or_expected_keys(
    part: str, name: str, key: str, value: object, message: str, choices: Choices
) -> None:
    refuse(part, name, choices, {key: value}, message)


ROWS = {"rows": ["batch_size"]}
SHOWN = ROWS | {"values": {"throughput": "trees/s"}}
BOTH = {"throughput": "trees/s", "throughput over base": "of it"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"table": None}, "has no table and no figure"),
        ({"table": ROWS}, "a table needs rows and values"),
        ({"table": ROWS | {"values": BOTH}}, "table: values has 2 numbers for one cell; add"),
        ({"table": {"kind": "cliams"}}, "unknown kind of a table 'cliams', did you mean claims"),
        ({"table": SHOWN | {"base": {"system": "vertx"}}}, "unknown system in base 'vertx'"),
        ({"table": SHOWN | {"epoch": "many"}}, "table.epoch"),
        ({"table": SHOWN | {"unmeasured": {"api_ms": "a"}}}, "unmeasured: unknown quantity 'api"),
        ({"figure": {"kind": "bar"}}, "unknown kind of a figure 'bar', did you mean bars"),
        ({"figure": "curves"}, "figure: expected a valid dictionary, got 'curves'"),
        ({"compare": {"policies": ["vertex"]}}, "unknown comparison 'policies'"),
        ({"notes": [{"a": 1}]}, "notes.0: expected a valid string, got"),
    ],
)
def test_a_wrong_declaration_is_refused_before_anything_is_measured(
    change: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    content = yaml.safe_load((CONF_DIR / f"experiment/{SWEEP}.yaml").read_text())
    (tmp_path / "experiment").mkdir()
    (tmp_path / "system").symlink_to(CONF_DIR / "system")
    (tmp_path / "experiment/broken.yaml").write_text(yaml.safe_dump(content | change))
    with expect_refusal("broken.yaml", problem):
        read_declaration("broken", tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "fact"),
    [
        ("machine", {**MACHINE, "cpu": "another CPU"}, "have different cpu"),
        ("versions", {"made_up": "2.0"}, "differ in version of made_up"),
    ],
)
def test_records_that_may_not_share_a_table_are_refused(
    field: str, value: object, fact: str, choices: Choices, composer: Composer, capsys: Output
) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        return {field: value} if trial.settings["batch_size"] == 64 else {}

    write_measured(FIGURE, choices, composer, change)
    assert run_draw(FIGURE, choices) == 1
    read_refusal(capsys, f"draw: {FIGURE}: ", fact)
    assert not list(choices.results_dir.rglob(f"{FIGURE}.*"))


def test_an_unknown_experiment_is_refused_with_those_to_choose_from(
    choices: Choices, capsys: Output
) -> None:
    assert run_draw("cavs_fig8", choices) == 1
    read_refusal(capsys, "draw: cavs_fig8: ", FIGURE)
