"""Tables read from source code: lines of code, control flow, programming models, frameworks."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.artifacts import Choices, PlannedTrial
from dynbatch.plots.experiment import load_experiment
from dynbatch.plots.tables.cells import EN_DASH
from dynbatch.plots.tables.code_lines import CodeOf, count_model
from dynbatch.plots.tables.control_flow import read_control_flow
from tests.support.experiments import Load, build_tables, change_systems, select_number

LINES, FLOW = "cavs_lines_of_code", "acrobat_table2"
OWN = "counted.models.first"
MODEL = '''
    """A docstring
    of two lines."""

    import math
    from counted.parts.bricks import cell, unused_brick as other
    from counted.parts import tools
    from counted.runtime import System

    WIDTH = 3  # a comment


    class Plain:
        """A docstring."""

        def forward(self, x: int) -> int:
            # a comment
            return cell(
                x,
                WIDTH,
            )


    class Clever(Plain):
        def forward(self, x: int) -> int:
            if x > math.pi:
                return tools.shift(x)
            return System.run(x)


    class Unused:
        value = other


    PLAIN = {"one": Plain}
    CLEVER = {"one": (Clever, 3)}
'''
BRICKS = """
    def cell(x, width):
        return _inner(x) + width


    def _inner(x):
        return x


    _inner.derivative = None
    cell.register(_inner)


    def unused_brick(x):
        return x
"""
FILES = {
    "__init__": "",
    "models/__init__": "",
    "models/first": MODEL,
    "files/__init__": "",
    "files/one": "def first():\n    return second()\n\n\ndef second():\n    return 1\n",
    "parts/__init__": "",
    "parts/bricks": BRICKS,
    "parts/tools": "def shift(x):\n    y = x\n    return y\n",
    "runtime": "class System:\n    def run(x):\n        return x\n",
}


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        path = tmp_path / "counted" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))


def count_one(table: str, **values: Any) -> dict[str, int]:
    return count_model(CodeOf(f"counted.models:{table}", **values), "one")[1]


@pytest.mark.usefixtures("counted")
def test_a_line_is_a_statement_that_the_class_uses() -> None:
    """Plain and WIDTH have a class, def, return and assignment; the table names only Plain."""
    assert count_model(CodeOf("counted.models:PLAIN"), "one") == (3, {OWN: 4})
    # cell with its registration, and _inner with its derivative
    shared = count_one("PLAIN", shared=("counted.parts",))
    assert shared == {OWN: 4, "counted.parts.bricks": 6}


@pytest.mark.usefixtures("counted")
def test_attributes_of_modules_count_and_the_code_that_runs_models_does_not() -> None:
    lines = count_one("CLEVER", shared=("counted.parts",))
    assert lines == {OWN: 4 + 5, "counted.parts.bricks": 6, "counted.parts.tools": 3}
    fewer = count_one("CLEVER", shared=("counted.parts",), without=("counted.parts.tools",))
    assert fewer == {OWN: 4 + 5, "counted.parts.bricks": 6}


@pytest.mark.usefixtures("counted")
def test_without_a_table_the_whole_file_counts() -> None:
    assert count_model(CodeOf("counted.files"), "one") == (4, {"counted.files.one": 4})
    received = count_one(
        "PLAIN", also=("counted.parts.tools.shift",), shared=("counted.parts.tools",)
    )
    assert received == {OWN: 4, "counted.parts.tools": 3}


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"networks": "counted.gone"}, "gone is not a module"),
        ({"networks": "counted.gone:PLAIN"}, "gone is not a module"),
        ({"networks": "counted.models:LEVELS"}, "models:LEVELS is not a table of networks"),
        ({"shared": ("counted.parts", "counted.gone")}, "gone is not a module"),
        ({"without": ("counted.gone",)}, "gone is not a module"),
        ({"also": ("counted.gone.shift",)}, "gone.shift is not defined; fix table.code"),
        (
            {"also": ("counted.parts.tools.lift",), "shared": ("counted.parts",)},
            "tools.lift is not defined",
        ),
    ],
)
def test_a_wrong_name_is_refused(wrong: dict[str, Any], message: str) -> None:
    """A wrong name would count no lines, so that the system would seem shorter."""
    with pytest.raises(ConfigError, match=message):
        count_model(CodeOf(**{"networks": "counted.models:PLAIN", **wrong}), "one")
    for networks in ("counted.models:PLAIN", "counted.files"):
        assert count_model(CodeOf(networks), "two") == (0, {})


def test_lines_are_divided_by_those_of_the_first_system(choices: Choices) -> None:
    experiment = load_experiment(LINES, choices, ())
    (table,) = build_tables(experiment)
    numbers = table.numbers

    def value(system: str, quantity: str, model: str = "tree_lstm") -> float:
        number = select_number(numbers, system=system, model=model, quantity=quantity)
        return float(number.value)

    assert value("vertex", "ratio") == 1
    assert value("torch_levels", "ratio") == value("torch_levels", "all") / value("vertex", "all")
    # Two systems share a package; each has the models that it runs.
    for system, model in (("tf_trees", "var_lstm"), ("tf_static", "tree_lstm")):
        own = select_number(numbers, system=system, model=model, quantity="own")
        assert own.status == "not written"
    assert [*table.cells["Var-LSTM"].loc[experiment.label("torchfold")]] == [EN_DASH] * 3
    paper = numbers[numbers.status == "published"]
    assert [*zip(paper.system, paper.value, strict=True)] == [("fold", 3.5)]


def test_shared_cells_count_for_each_system_that_uses_them(choices: Choices) -> None:
    (table,) = build_tables(load_experiment(LINES, choices, ()))
    for system in ("fold", "tf_trees"):
        number = select_number(table.numbers, system=system, model="tree_lstm", quantity="all")
        assert "dynbatch.systems.on_tensorflow.cells" in number.modules.split()


def test_a_model_without_a_program_is_refused(choices: Choices) -> None:
    with pytest.raises(ConfigError, match="tree_fc has no program; remove it"):
        read_control_flow(choices.conf_dir, "tree_fc")


def test_control_flow_is_that_of_the_code_and_next_to_the_papers(choices: Choices) -> None:
    (table,) = build_tables(load_experiment(FLOW, choices, ()))
    names = {
        **{"iterates": "ITE", "recurses": "REC", "waits": "TDC", "is_parallel": "IFP"},
        **{"varies": "ICF", "varies_in_training": "TCF"},
    }
    found = {
        row["model"]: " ".join(letters for name, letters in names.items() if row[name])
        for row in table.numbers.to_dict("records")
    }
    assert found == {
        "tree_lstm": "REC IFP ICF TCF",
        "mv_rnn": "REC IFP ICF TCF",
        "birnn": "ITE IFP ICF TCF",
        "nested_rnn": "ITE TDC ICF TCF",
        "drnn": "ITE REC TDC IFP ICF TCF",
        "stack_rnn": "ITE TDC ICF TCF",
        "berxit": "ITE TDC IFP ICF",
    }
    features = ["yes", "no", "yes", "no", "yes", "yes", "ITE, TDC, ICF, TCF"]
    assert [*table.cells.loc["StackRNN"]] == features


def test_programming_models_have_features_and_measured_share(load: Load) -> None:
    def change(trial: PlannedTrial, _round: int) -> dict[str, Any]:
        system, n = trial.settings["system"], trial.settings["batch_size"]
        phases = {"construct": None if system == "torch_eager" else 0.02, "schedule": 0.03}
        return {"phases_s": phases, "instances_per_s": n / 0.2}

    (table,) = build_tables(load("cavs_fig2", change))
    systems, cells = table.numbers.system, table.cells.to_numpy()
    found = {system: [*row] for system, row in zip(systems, cells, strict=True)}
    assert found["vertex"] == ["any", "yes", "yes", "yes", "by vertex", "25.0", "vertex function"]
    assert found["torchfold"][:4] == ["any", "no", "yes", "no"]
    assert found["tf_static"][:4] == ["sequences", "yes", "no", "no"]
    assert found["torch_eager"][:4] == ["any", "yes", "yes", "no"]
    assert found["torch_eager"][5] == "not separable"


def test_frameworks_have_words_of_the_paper_and_numbers_of_ours(load: Load) -> None:
    failed = {"fold": {"status": "unsupported", "reason": "made up"}}
    change = change_systems(failed, instances_per_s=1234.0)
    (table,) = build_tables(load("acrobat_table1", change))
    found = {row[0]: [*map(str, row[1:])] for row in table.cells.itertuples()}
    assert found["ACRoBat"][:6] == ["yes", "hybrid", "none", "high", "low", "high"]
    assert found["ACRoBat"][6:] == ["ACRoBat strategy", "7 of 7", "1,230"]
    assert found["Cortex"][6:] == [EN_DASH, EN_DASH, EN_DASH]
    assert found["TensorFlow Fold"][7:] == ["1 of 7", "unsupported"]
    assert found["PyTorch"][0] == "no"
