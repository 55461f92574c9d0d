"""Lines of code: what counts as one, what a model leads to, and the table that is drawn of them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ConfigError
from harness.planning.artefacts import Choices, plan_artefact, plan_counts
from harness.planning.compose import Composer
from harness.planning.grid import SCALES, expand, experiment_names, read_experiment
from plots.numbers.code_lines import CodeLines, CodeOf, code_lines
from plots.numbers.gather import gather
from plots.numbers.presentation import read_presentation
from plots.numbers.published_rows import read_published_rows
from plots.tables.lines_of_code import counted_of, rows_of, table_of
from tests.support.artefacts import lines_of, run_draw

NAME = "cavs_lines_of_code"
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
TOOLS = "def shift(x):\n    y = x\n    return y\n"
RUNTIME = "class System:\n    def run(x):\n        return x\n"
FILES = {
    "__init__": "",
    "models/__init__": "",
    "models/one": MODEL,
    "parts/__init__": "",
    "parts/bricks": BRICKS,
    "parts/tools": TOOLS,
    "runtime": RUNTIME,
}


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        path = tmp_path / "counted" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))


def lines(**values: Any) -> CodeLines | None:
    return code_lines(CodeOf("counted.models", **values), "one")


@pytest.mark.usefixtures("counted")
def test_a_line_is_a_statement_that_the_class_leads_to() -> None:
    """Plain and WIDTH: class, def, return, assignment."""
    own = "counted.models.one"
    assert lines(entry="Plain") == CodeLines(4, 4, (own,))
    # cell with its registration, and _inner with its derivative
    shared = lines(entry="Plain", shared=("counted.parts",))
    assert shared == CodeLines(4, 10, ("counted.models.one", "counted.parts.bricks"))


@pytest.mark.usefixtures("counted")
def test_attributes_of_modules_are_followed_and_what_runs_models_is_not() -> None:
    found = lines(entry="Clever", shared=("counted.parts",))
    assert found is not None
    assert found.own == 4 + 5
    assert found.with_shared == found.own + 6 + 3
    assert "counted.runtime" not in found.files
    less = lines(entry="Clever", shared=("counted.parts",), without=("counted.parts.tools",))
    assert less is not None
    assert less.with_shared == found.with_shared - 3


@pytest.mark.usefixtures("counted")
def test_without_a_class_the_whole_file_counts_and_what_it_is_handed_too() -> None:
    whole = lines()
    assert whole is not None
    assert whole.own == 1 + 3 + 5 + 2
    handed = lines(also=("counted.parts.tools.shift",), shared=("counted.parts.tools",))
    assert handed is not None
    assert handed.with_shared == whole.own + 3


@pytest.mark.usefixtures("counted")
def test_what_is_not_there() -> None:
    assert code_lines(CodeOf("counted.models"), "two") is None
    with pytest.raises(ConfigError, match=r"no class Levels; it has WIDTH, Plain, Clever, Unused"):
        lines(entry="Levels")
    with pytest.raises(ConfigError, match=r"parts\.tools\.lift is no definition"):
        lines(also=("counted.parts.tools.lift",), shared=("counted.parts",))


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize(
    "wrong",
    [
        {"package": "counted.gone"},
        {"shared": ("counted.parts", "counted.gone")},
        {"without": ("counted.gone",)},
        {"also": ("counted.gone.shift",)},
    ],
)
def test_a_name_of_no_module_is_an_error(wrong: dict[str, Any]) -> None:
    """What it should have named would count nothing, and the system look short."""
    with pytest.raises(ConfigError, match=r"^counted\.gone is no module .*; correct show\.code$"):
        code_lines(CodeOf(**{"package": "counted.models", **wrong}), "one")


def test_folds_cells_count_and_a_model_of_another_system_does_not(choices: Choices) -> None:
    counted = counted_of(gather(NAME, choices, ()))
    fold, trees = counted["fold", "tree_lstm"], counted["tf_trees", "tree_lstm"]
    assert fold is not None
    assert trees is not None
    cells = "systems.on_tensorflow.parts.tree_cells"
    assert cells in fold.files
    assert cells in trees.files
    assert counted["tf_trees", "var_lstm"] is None
    assert counted["tf_static", "tree_lstm"] is None  # the file there is that of tf_trees


def test_an_artefact_without_trials_is_planned_and_drawn(choices: Choices) -> None:
    for scale in SCALES:
        grid = expand(NAME, scale, choices.conf_dir)
        assert (grid.settings, grid.sweeps) == ((), ())
    assert read_presentation(NAME, choices.conf_dir).reads_code
    assert run_draw(NAME, choices) == 0
    rows = lines_of(choices.results_dir / f"tables/{NAME}.csv")
    paper = [row for row in rows if row["value"]]
    assert [(row["system"], float(row["value"])) for row in paper] == [("fold", 3.5)]


def test_the_table_divides_by_the_first_system(choices: Choices) -> None:
    trials = plan_artefact(NAME, choices, Composer(choices.conf_dir))
    artefact = gather(NAME, choices, trials, plan_counts(NAME, choices))
    published = read_published_rows(NAME)
    table = table_of(artefact, published)
    rows = dict(table.rows)
    first = next(iter(rows.values()))
    assert [str(first[i]) for i in (2, 5, 8)] == ["1.0"] * 3
    n_lines = {
        (row["system"], row.get("model")): row.get("all") for row in rows_of(artefact, published)
    }
    all_lines = n_lines["torch_levels", "tree_lstm"], n_lines["vertex", "tree_lstm"]
    assert isinstance(all_lines[0], int)
    assert isinstance(all_lines[1], int)
    assert str(rows["PyTorch levels"][5]) == f"{all_lines[0] / all_lines[1]:.1f}"
    assert [str(cell) for cell in rows["TorchFold"][:3]] == ["\N{EN DASH}"] * 3  # trees alone


def test_only_a_word_in_place_of_a_scale_plans_nothing(choices: Choices) -> None:
    for name in experiment_names(choices.conf_dir):
        said = read_experiment(name, choices.conf_dir)["scales"]["smoke"]
        grid = expand(name, "smoke", choices.conf_dir)
        plans = bool(grid.settings or grid.sweeps or grid.trials_of)
        assert plans == isinstance(said, dict), name
